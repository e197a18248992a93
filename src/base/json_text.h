#pragma once

#include <string>
#include <string_view>

namespace pointsman {

// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that
// the result is valid JSON whatever came in.
void append_json_string(std::string& out, std::string_view text);
// Likewise without the quotes.
void append_json_text(std::string& out, std::string_view text);
// Whether that appends `text` as it is. Text beyond ASCII is not looked into, and does not count.
[[nodiscard]] bool is_plain_json_text(std::string_view text);

[[nodiscard]] inline std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace pointsman
