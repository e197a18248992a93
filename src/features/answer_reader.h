#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/api.h"

namespace pointsman {

// What an answer has said so far. Nothing is known of what has not been said.
struct AnswerFacts {
  bool first_token = false;                    // a streamed event with output has passed
  std::optional<std::uint32_t> prompt_tokens;  // with the cached ones
  std::optional<std::uint32_t> completion_tokens;
  std::optional<std::uint32_t> cached_tokens;
  std::uint64_t response_id = 0;  // see response_key(); of /v1/responses only
};

// Reads the events of streamed answers and the ends of plain ones, as vLLM, SGLang, llama.cpp and
// the public APIs write them. What is not understood changes nothing.
//
// The first token is the first event with output:
//   chat         a delta with a non-empty field besides `role`, or an empty content without `role`
//                (a token may be half a character)
//   completions  any choice
//   responses    the first event whose type ends in ".delta"
//   messages     the first content_block_* event
// and never a comment, a ping, created or in_progress, an empty `choices`, an error, or [DONE]. On
// other paths it is the first byte of the body, which the caller sees by itself.
//
// One reader per thread; calls do not depend on each other. Under 1 µs for an event of 200 bytes.
class AnswerReader {
 public:
  AnswerReader();
  ~AnswerReader();

  // One event of a stream.
  void event(Api api, std::string_view name, std::string_view data, AnswerFacts& facts);

  // Of a plain answer: its first bytes (for the id) and its last (for the usage). Either may be
  // the whole body.
  void plain(Api api, std::string_view beginning, std::string_view end, AnswerFacts& facts);

 private:
  struct Json;

  [[nodiscard]] bool has_output(Api api, std::string_view name, std::string_view data);
  void read_usage(std::string_view text, AnswerFacts& facts);
  bool read_usage_object(std::string_view object, AnswerFacts& facts);
  // The text of `data` at this path of object fields; the view is valid until the next call.
  std::optional<std::string_view> text_at(std::string_view data, std::string_view outer,
                                          std::string_view inner);

  std::unique_ptr<Json> json_;
};

// Keeps of a plain answer that passes by what AnswerReader::plain wants: the first bytes and the
// last, whatever its length.
class PlainAnswer {
 public:
  static constexpr std::size_t kBeginning = 512;
  static constexpr std::size_t kEnd = 8 * 1024;

  void feed(std::string_view piece);
  [[nodiscard]] std::string_view beginning() const { return beginning_; }
  [[nodiscard]] std::string_view end() const { return end_; }
  void clear();

 private:
  std::string beginning_;
  std::string end_;  // up to twice kEnd
};

}  // namespace pointsman
