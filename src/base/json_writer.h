#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace pointsman {

// Writes one JSON document from the outside in. Commas are put where they belong; opening and
// closing must be paired by the caller. A number is the shortest decimal that
// reads back as the same double; those that JSON cannot say (NaN, infinity) become null.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view value);
  JsonWriter& number(double value);
  JsonWriter& integer(std::int64_t value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void before_value();

  std::string text_;
  bool comma_ = false;  // the next value or key follows another
};

}  // namespace pointsman
