#include "base/printable.h"

#include <cstddef>

namespace pointsman {
namespace {

std::string escaped(std::string_view text, bool keeps_lines) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are 0xC2 and one byte more.
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() &&
                       (static_cast<unsigned char>(text[i + 1]) & 0xE0U) == 0x80U;
    if (is_c1) {
      const auto code = static_cast<unsigned char>(text[++i]);
      out.append("\\x").append(1, kDigits[code >> 4U]).append(1, kDigits[code & 0xFU]);
    } else if (byte == '\n') {
      out += keeps_lines ? "\n" : "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out.append("\\x").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 0xFU]);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, false);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, true);
}

}  // namespace pointsman
