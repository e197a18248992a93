#include "base/json_writer.h"

#include <charconv>
#include <cmath>

#include "base/json_text.h"

namespace pointsman {
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
  append_json_string(text_, name);
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view value) {
  before_value();
  append_json_string(text_, value);
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
