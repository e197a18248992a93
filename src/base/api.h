#pragma once

#include <cstdint>
#include <string_view>

namespace pointsman {

// The kinds of inference paths whose bodies and streams this program reads. All others are passed
// on without being understood.
enum class Api : std::uint8_t {
  kOther,
  kChat,         // /v1/chat/completions
  kCompletions,  // /v1/completions
  kResponses,    // /v1/responses
  kMessages,     // /v1/messages
};

// `path` is decoded and without query.
constexpr Api api_of(std::string_view path) {
  if (path == "/v1/chat/completions") return Api::kChat;
  if (path == "/v1/completions") return Api::kCompletions;
  if (path == "/v1/responses") return Api::kResponses;
  if (path == "/v1/messages") return Api::kMessages;
  return Api::kOther;
}

// The id in "/v1/responses/{id}" and "/v1/responses/{id}/cancel" and the like; empty: none.
constexpr std::string_view response_id_in(std::string_view path) {
  constexpr std::string_view kPrefix = "/v1/responses/";
  if (!path.starts_with(kPrefix)) return {};
  path.remove_prefix(kPrefix.size());
  return path.substr(0, path.find('/'));
}

}  // namespace pointsman
