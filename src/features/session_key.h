#pragma once

#include <cstdint>
#include <string_view>

namespace pointsman {

// What may name the session of a request. Empty means absent. The key is taken from the first that
// is there, in this order:
//   1. the first configured header that the request carries (x-session-id, then agents' headers)
//   2. prompt_cache_key
//   3. conversation (its id, where it is an object)
//   4. user
//   5. the content: system message and first user message; without messages the first 1,024 bytes
//      or 256 ids of the prompt
struct SessionSources {
  std::string_view header;
  std::string_view prompt_cache_key;
  std::string_view conversation;
  std::string_view user;
  std::uint64_t content = 0;  // hash of 5, seeded by model and cache salt; 0: none
};

// 0 only where there is no source at all. Names of different kinds never give the same key, except
// by chance.
std::uint64_t session_key(const SessionSources& sources);

// The key under which the place of a stored response is remembered; 0 for an empty id.
std::uint64_t response_key(std::string_view response_id);

}  // namespace pointsman
