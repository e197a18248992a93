#include "features/partial_json.h"

#include "features/json_read.h"

namespace pointsman {

void close_partial_json(std::string& text) {
  constexpr std::size_t kMaxDepth = 256;
  std::string closers;
  std::size_t string_start = 0;
  bool in_string = false;  // at the end
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      string_start = i;
      i = json::string_end(text, i);
      in_string = i == text.size();
    } else if (c == '{' || c == '[') {
      if (closers.size() == kMaxDepth) {
        text.resize(i);
        break;
      }
      closers += c == '{' ? '}' : ']';
    } else if ((c == '}' || c == ']') && !closers.empty()) {
      closers.pop_back();
    }
  }
  if (in_string && closers.size() > 1) {
    // An escape of up to six bytes, or a character of up to four, may have been cut.
    const std::size_t escape = text.rfind('\\');
    if (escape != std::string::npos && escape > string_start && text.size() - escape < 6) {
      text.resize(escape);
    }
    while (text.size() > string_start + 1 && (text.back() & 0x80) != 0) text.pop_back();
    text += '"';
  } else {
    if (in_string) text.resize(string_start);
    while (!text.empty() && text.back() != '{' && text.back() != '[' && text.back() != ',' &&
           text.back() != ':' && text.back() != '}' && text.back() != ']' && text.back() != '"') {
      text.pop_back();
    }
  }
  text.append(closers.rbegin(), closers.rend());
}

}  // namespace pointsman
