#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include <simdjson.h>

namespace pointsman::json {

// Small lenient reads on top of simdjson's on-demand values. A value of another type is "nothing".

namespace od = simdjson::ondemand;

// The value as it is written; nothing where the document is broken there, and then no more may be
// read of it. Consumes arrays and objects; a scalar may still be read after.
inline std::optional<std::string_view> raw(od::value& value) {
  std::string_view text;
  if (simdjson::to_json_string(value).get(text) != simdjson::SUCCESS) return {};
  return text;
}

// Text, unescaped. Without escapes it is a view of the document, with them of the parser's buffer.
// Text that is no valid Unicode (a lone surrogate) is given as it is written.
inline std::optional<std::string_view> string(od::value& value) {
  od::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS || type != od::json_type::string) return {};
  const std::string_view written = raw(value).value_or(std::string_view());
  if (written.size() < 2 || written.back() != '"') return {};
  const std::string_view inner = written.substr(1, written.size() - 2);
  if (inner.find('\\') == std::string_view::npos) return inner;
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return inner;
  return text;
}

// A whole number that is not negative, also when written like 16.0; too large ones are cut.
inline std::optional<std::uint32_t> count(od::value& value) {
  od::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS || type != od::json_type::number) return {};
  double number = 0;
  if (value.get_double().get(number) != simdjson::SUCCESS || !(number >= 0)) return {};
  constexpr double kMax = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(number < kMax ? number : kMax);
}

inline bool is_true(od::value& value) {
  od::json_type type{};
  bool flag = false;
  return value.type().get(type) == simdjson::SUCCESS && type == od::json_type::boolean &&
         value.get_bool().get(flag) == simdjson::SUCCESS && flag;
}

inline bool is_null(od::value& value) {
  od::json_type type{};
  return value.type().get(type) == simdjson::SUCCESS && type == od::json_type::null;
}

// Opens `text` as a document that is one object. `capacity` bytes may be read from text.data(),
// SIMDJSON_PADDING of them behind the text.
inline bool open_object(od::parser& parser, std::string_view text, std::size_t capacity,
                        od::document& document, od::object& object) {
  return parser.iterate(simdjson::padded_string_view(text.data(), text.size(), capacity))
                 .get(document) == simdjson::SUCCESS &&
         document.get_object().get(object) == simdjson::SUCCESS;
}

// Where the string closes whose quote opens at `at`; text.size() where it does not. For text that
// is looked at without a parser.
inline std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at, text.size());
}

// Calls each(key, value) for the fields of an object, in order, until the end or until each
// returns false. Returns false where the document is broken; then no more may be read of it, nor
// may it be rewound.
template <typename Each>
bool for_each_field(od::object& object, Each&& each) {
  for (auto field : object) {
    std::string_view key;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS) return false;
    od::value value;
    if (field.value().get(value) != simdjson::SUCCESS) return false;
    if (!each(key, value)) return true;
  }
  return true;
}

// Likewise for the elements of an array: each(value).
template <typename Each>
bool for_each_element(od::array& array, Each&& each) {
  for (auto element : array) {
    od::value value;
    if (element.get(value) != simdjson::SUCCESS) return false;
    if (!each(value)) return true;
  }
  return true;
}

}  // namespace pointsman::json
