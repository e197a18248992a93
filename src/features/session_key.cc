#include "features/session_key.h"

#include "features/block_hash.h"

namespace pointsman {
namespace {

enum Kind : std::uint64_t { kHeader = 1, kPromptCacheKey, kConversation, kUser, kResponse };

std::uint64_t named(std::string_view name, Kind kind) {
  const std::uint64_t key = hash_bytes(name, kind);
  return key == 0 ? 1 : key;
}

}  // namespace

std::uint64_t session_key(const SessionSources& sources) {
  if (!sources.header.empty()) return named(sources.header, kHeader);
  if (!sources.prompt_cache_key.empty()) return named(sources.prompt_cache_key, kPromptCacheKey);
  if (!sources.conversation.empty()) return named(sources.conversation, kConversation);
  if (!sources.user.empty()) return named(sources.user, kUser);
  return sources.content;
}

std::uint64_t response_key(std::string_view response_id) {
  return response_id.empty() ? 0 : named(response_id, kResponse);
}

}  // namespace pointsman
