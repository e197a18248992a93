#include "telemetry/json_writer.h"

#include <charconv>
#include <cmath>

namespace pointsman {
namespace {

// Length of the UTF-8 sequence that `text` begins with, 0 where it is not valid (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) length = 2;
  if (first >= 0xE0 && first <= 0xEF) length = 3;
  if (first >= 0xF0 && first <= 0xF4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

constexpr bool is_plain(char c) {
  return c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;  // a byte above 0x7F is a negative char
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;

    const char c = text.front();
    std::size_t used = 1;
    if (static_cast<unsigned char>(c) >= 0x80) {
      const std::size_t length = sequence_length(text);
      if (length == 0) {
        out.append("\xEF\xBF\xBD");
      } else {
        out.append(text.substr(0, length));
        used = length;
      }
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (c == '\r') {
      out.append("\\r");
    } else {
      out.append("\\u00");
      out += kHex[(c >> 4) & 0xF];
      out += kHex[c & 0xF];
    }
    text.remove_prefix(used);
  }
  out += '"';
}

void JsonWriter::before_value() {
  if (comma_) text_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  before_value();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  before_value();
  append_json_string(name, text_);
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  before_value();
  append_json_string(value, text_);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  before_value();
  char text[32];
  text_.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  before_value();
  text_.append(std::to_string(value));
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  before_value();
  text_.append(value ? "true" : "false");
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value();
  text_.append("null");
  return *this;
}

}  // namespace pointsman
