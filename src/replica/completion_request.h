#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "replica/prompt.h"

namespace pointsman {

enum class CompletionApi : std::uint8_t { kChat, kCompletions, kTokenize };

// What the simulated engine reads of a request body. Everything else is ignored, `n` included.
struct CompletionRequest {
  CompletionApi api = CompletionApi::kChat;
  std::string model;  // empty where the request names none
  std::string request_id;
  bool stream = false;
  bool include_usage = false;
  std::optional<std::uint32_t> max_tokens;  // the newer max_completion_tokens counts before it
  std::uint32_t min_tokens = 0;
  std::string cache_salt;
  std::vector<TokenIds> prompts;  // one, or a batch of /v1/completions
};

// An answer that is an error, in vLLM's words.
struct ApiError {
  int status = 400;
  std::string type;
  std::string message;
  std::string param;  // empty: null

  // {"error":{"message":…,"type":…,"param":…,"code":…}}
  [[nodiscard]] std::string body() const;
};

// Reads a request body as vLLM does: what is missing or malformed is a 400 with its place.
[[nodiscard]] std::variant<CompletionRequest, ApiError> parse_completion(CompletionApi api,
                                                                         std::string_view body);

}  // namespace pointsman
