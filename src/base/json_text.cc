#include "base/json_text.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pointsman {
namespace {

// The length of the UTF-8 sequence at the start of `text` (Unicode, table 3-7), or 0.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto within = [&byte](std::size_t i, unsigned low, unsigned high) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : 0xbf;  // no surrogates
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xf4 ? 0x8f : 0xbf;  // up to U+10FFFF
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

// Stands in a JSON string as it is, without a look at its neighbours.
constexpr bool is_plain(char c) {
  return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f;  // a byte above 0x7f is a negative char
}

// How many bytes at the start of `text` are plain. Eight a step: a word is passed over where no
// byte in it is below 0x20, above 0x7e, a quote or a backslash; what the test errs in is looked at
// byte by byte.
std::size_t plain_prefix(std::string_view text) {
  constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
  constexpr std::uint64_t kHighs = 0x8080808080808080ULL;
  std::size_t at = 0;
  for (; text.size() - at >= 8; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    const std::uint64_t quote = word ^ '"' * kOnes;
    const std::uint64_t backslash = word ^ '\\' * kOnes;
    // The high bit of a byte: below 0x20, one of the two, 0x7f, or above it.
    const std::uint64_t special =
        (word - 0x20 * kOnes) | (quote - kOnes) | (backslash - kOnes) | (word + kOnes) | word;
    if ((special & kHighs) != 0) break;
  }
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

}  // namespace

bool is_plain_json_text(std::string_view text) {
  return plain_prefix(text) == text.size();
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_text(out, text);
  out += '"';
}

void append_json_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  while (true) {
    const std::size_t plain = plain_prefix(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;

    const std::size_t length = sequence_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace pointsman
