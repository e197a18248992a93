#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pointsman {

// What is kept of an API key: its SHA-256 (FIPS 180-4). A key is random and as long as the hash, so
// that no list of guesses reaches it; the slow hashes made for passwords would only cost each
// request milliseconds.
using KeyHash = std::array<std::uint8_t, 32>;

KeyHash hash_of_key(std::string_view key);

// 64 hexadecimal digits, as `sha256sum` prints them.
std::string to_hex(const KeyHash& hash);

// A new key: "pm-" and 43 characters of [A-Za-z0-9_-], 256 bits from the system's source. Empty
// where that fails.
std::string make_key();

// The key of a request: the token of `Authorization: Bearer …`. Empty: there is none.
std::string_view bearer_token(std::string_view authorization);

}  // namespace pointsman
