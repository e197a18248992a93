#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace pointsman {

// Which bytes HTTP allows where (RFC 9110, 5.5 and 5.6.2).

// Letters, digits and !#$%&'*+-.^_`|~ : methods and header names.
inline constexpr std::array<bool, 256> kTokenChar = [] {
  std::array<bool, 256> table{};
  for (int c = '0'; c <= '9'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<std::size_t>(c)] = true;
  for (const char c :
       {'!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}();

constexpr bool is_token_char(char c) {
  return kTokenChar[static_cast<unsigned char>(c)];
}

// Header values: all but control characters; tab is allowed, bytes above 127 too.
constexpr bool is_value_char(char c) {
  const auto u = static_cast<unsigned char>(c);
  return (u >= 0x20 && u != 0x7f) || u == '\t';
}

// The first byte in [p, end) that may not stand in a header value, or end. Eight bytes a step:
// a word is passed over when no byte in it is below 0x20 or equal to 0x7f.
inline const char* skip_value(const char* p, const char* end) {
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  constexpr std::uint64_t kHighs = 0x8080808080808080ULL;
  for (;;) {
    while (end - p >= 8) {
      std::uint64_t word;
      std::memcpy(&word, p, 8);
      const std::uint64_t below = (word - 0x20 * kOnes) & ~word;
      const std::uint64_t del = word ^ 0x7f * kOnes;
      const std::uint64_t is_del = (del - kOnes) & ~del;
      if (((below | is_del) & kHighs) != 0) break;
      p += 8;
    }
    const char* const stop = end - p >= 8 ? p + 8 : end;
    while (p < stop && is_value_char(*p)) ++p;
    if (p < stop || p == end) return p;
  }
}

inline const char* skip_token(const char* p, const char* end) {
  while (p < end && is_token_char(*p)) ++p;
  return p;
}

}  // namespace pointsman
