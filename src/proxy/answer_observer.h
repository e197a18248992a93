#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/api.h"
#include "features/answer_reader.h"
#include "http/sse_scanner.h"

namespace pointsman {

// Watches the body of one answer go by: its first token, its usage, its response id. Never changes
// or delays it. A body that is compressed or of an unknown path is not looked into: its first byte
// stands for its first token.
class AnswerObserver {
 public:
  void start(Api api, bool event_stream, bool compressed) {
    reset();
    api_ = api;
    mode_ = compressed           ? Mode::kOpaque
            : event_stream       ? Mode::kEvents
            : api == Api::kOther ? Mode::kOpaque
                                 : Mode::kPlain;
  }
  void reset() {
    mode_ = Mode::kOpaque;
    events_.reset();
    plain_.clear();
    facts_ = AnswerFacts{};
  }

  // The next run of body data. Returns how many events with data ended in it.
  int take(std::string_view data, AnswerReader& reader) {
    switch (mode_) {
      case Mode::kOpaque:
        facts_.first_token = true;
        return 1;
      case Mode::kPlain:
        plain_.feed(data);
        return 0;
      case Mode::kEvents:
        break;
    }
    if (api_ == Api::kOther) facts_.first_token = true;
    int count = 0;
    events_.feed(data, [&](const SseEvent& event) {
      reader.event(api_, event.name, event.data, facts_);
      if (facts_.first_token && event.data != "[DONE]") ++count;
    });
    return count;
  }
  // The body has ended well.
  void end(AnswerReader& reader) {
    if (mode_ == Mode::kPlain) {
      reader.plain(api_, plain_.beginning(), plain_.end(), facts_);
    }
  }

  [[nodiscard]] bool first_token() const { return facts_.first_token; }
  [[nodiscard]] std::optional<std::uint32_t> prompt_tokens() const { return facts_.prompt_tokens; }
  [[nodiscard]] std::optional<std::uint32_t> cached_tokens() const { return facts_.cached_tokens; }
  [[nodiscard]] std::optional<std::uint32_t> output_tokens() const {
    return facts_.completion_tokens;
  }
  [[nodiscard]] std::uint64_t response_id() const { return facts_.response_id; }
  // An event of our own may be put in here.
  [[nodiscard]] bool may_insert_event() const {
    return mode_ == Mode::kEvents && events_.at_event_boundary();
  }

 private:
  enum class Mode : std::uint8_t { kOpaque, kEvents, kPlain };

  Api api_ = Api::kOther;
  Mode mode_ = Mode::kOpaque;
  SseScanner events_;
  PlainAnswer plain_;
  AnswerFacts facts_;
};

}  // namespace pointsman
