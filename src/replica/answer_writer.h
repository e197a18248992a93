#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "replica/completion_request.h"

namespace pointsman {

struct TokenUsage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::uint64_t cached_tokens = 0;
};

// One choice of an answer that is sent in one piece.
struct AnswerChoice {
  std::string text;
  bool stopped = false;  // the model ended by itself, before the limit
};

// Writes the answers of one request in vLLM's form: whole, or as events of a stream, each with its
// `data: ` and blank line.
class AnswerWriter {
 public:
  // `id` is without the prefix that the API puts before it; `created` in seconds since 1970.
  AnswerWriter(CompletionApi api, std::string_view id, std::string_view model,
               std::int64_t created);

  // The event that opens choice `index` of a chat answer; empty for completions.
  [[nodiscard]] std::string role_event(std::size_t index) const;
  // An event with text of choice `index`. `finish_reason` is empty until the last.
  [[nodiscard]] std::string text_event(std::size_t index, std::string_view text,
                                       std::string_view finish_reason) const;
  [[nodiscard]] std::string usage_event(const TokenUsage& usage) const;
  static constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

  [[nodiscard]] std::string whole(const std::vector<AnswerChoice>& choices,
                                  const TokenUsage& usage) const;

 private:
  [[nodiscard]] std::string head(std::string_view object) const;

  const bool chat_;
  std::string id_;
  std::string model_;  // as a JSON string
  std::int64_t created_;
  std::string event_head_;
};

}  // namespace pointsman
