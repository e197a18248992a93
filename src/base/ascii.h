#pragma once

#include <algorithm>
#include <string_view>

namespace pointsman {

// Text rules of HTTP and of configuration: ASCII only, no locale.

constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// Equal without regard to the case of A-Z.
constexpr bool iequals(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (ascii_lower(a[i]) != ascii_lower(b[i])) return false;
  }
  return true;
}

constexpr bool istarts_with(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && iequals(text.substr(0, prefix.size()), prefix);
}

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The value of a hexadecimal digit, or -1.
constexpr int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Without spaces and tabs at both ends (HTTP's optional white space).
constexpr std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls `each` for every non-empty, trimmed element of a comma-separated list.
template <typename Each>
constexpr void for_each_element(std::string_view list, Each&& each) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view element = trim(list.substr(0, comma));
    if (!element.empty()) each(element);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

}  // namespace pointsman
