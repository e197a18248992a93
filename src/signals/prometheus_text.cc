#include "signals/prometheus_text.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/ascii.h"

namespace pointsman {
namespace {

enum CharClass : unsigned char { kNoName = 0, kNameStart = 1, kNameRest = 2 };

constexpr std::array<unsigned char, 256> make_classes() {
  std::array<unsigned char, 256> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[static_cast<std::size_t>(c)] = kNameStart;
  for (int c = 'A'; c <= 'Z'; ++c) classes[static_cast<std::size_t>(c)] = kNameStart;
  for (int c = '0'; c <= '9'; ++c) classes[static_cast<std::size_t>(c)] = kNameRest;
  classes['_'] = classes[':'] = kNameStart;
  return classes;
}
constexpr std::array<unsigned char, 256> kClasses = make_classes();

unsigned char class_of(char c) {
  return kClasses[static_cast<unsigned char>(c)];
}

// Walks over a line. Every step leaves `at` within the text.
struct Cursor {
  std::string_view text;
  std::size_t at = 0;

  [[nodiscard]] bool end() const { return at == text.size(); }
  [[nodiscard]] char peek() const { return end() ? '\0' : text[at]; }
  void skip_blanks() {
    while (!end() && (text[at] == ' ' || text[at] == '\t')) ++at;
  }
  bool take(char c) {
    if (end() || text[at] != c) return false;
    ++at;
    return true;
  }
  std::string_view take_name() {
    const std::size_t start = at;
    if (end() || class_of(text[at]) != kNameStart) return {};
    while (!end() && class_of(text[at]) != kNoName) ++at;
    return text.substr(start, at - start);
  }
  // The inside of a quoted text, escapes still in it. False: not closed.
  bool take_quoted(std::string_view& inside) {
    if (!take('"')) return false;
    const std::size_t start = at;
    while (!end()) {
      if (text[at] == '\\') {
        at += 2;
        if (at > text.size()) return false;
      } else if (text[at] == '"') {
        inside = text.substr(start, at - start);
        ++at;
        return true;
      } else {
        ++at;
      }
    }
    return false;
  }
};

// Calls each(name, escaped value) for the labels between two braces; stops where it returns false.
// False: not well-formed.
template <typename Each>
bool walk_labels(Cursor& cursor, Each&& each) {
  for (;;) {
    cursor.skip_blanks();
    if (cursor.end() || cursor.peek() == '}') return true;
    const std::string_view name = cursor.take_name();
    if (name.empty() || name.find(':') != std::string_view::npos) return false;
    cursor.skip_blanks();
    if (!cursor.take('=')) return false;
    cursor.skip_blanks();
    std::string_view value;
    if (!cursor.take_quoted(value)) return false;
    if (!each(name, value)) return true;
    cursor.skip_blanks();
    if (!cursor.take(',') && !cursor.end() && cursor.peek() != '}') return false;
  }
}

// Takes one character of an escaped text. Unknown escapes stay as they are.
char unescape(std::string_view text, std::size_t& at) {
  const char c = text[at++];
  if (c != '\\' || at == text.size()) return c;
  switch (text[at]) {
    case 'n':
      ++at;
      return '\n';
    case '\\':
    case '"':
      return text[at++];
    default:
      return c;
  }
}

bool parse_value(std::string_view token, double& value) {
  if (token.starts_with('+')) token.remove_prefix(1);
  if (token.empty() || token.front() == '+') return false;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  return error == std::errc() && end == token.data() + token.size();
}

bool is_timestamp(std::string_view token) {
  bool digits = false;
  for (const char c : token) {
    if (is_digit(c)) {
      digits = true;
    } else if (c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E') {
      return false;
    }
  }
  return digits;
}

}  // namespace

std::string_view prometheus_name(std::string_view line) {
  Cursor cursor{line};
  if (class_of(cursor.peek()) != kNameStart) cursor.skip_blanks();
  return cursor.take_name();
}

std::optional<PrometheusSample> parse_prometheus_line(std::string_view line,
                                                      std::string_view name) {
  PrometheusSample sample;
  sample.name = name;
  Cursor cursor{line, static_cast<std::size_t>(name.data() - line.data()) + name.size()};
  const std::size_t after_name = cursor.at;
  cursor.skip_blanks();
  if (cursor.take('{')) {
    const std::size_t start = cursor.at;
    if (!walk_labels(cursor, [](std::string_view, std::string_view) { return true; })) return {};
    sample.labels = line.substr(start, cursor.at - start);
    if (!cursor.take('}')) return {};
    cursor.skip_blanks();
  } else if (cursor.at == after_name) {
    return {};
  }
  std::string_view rest = line.substr(cursor.at);
  while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\t' || rest.back() == '\r')) {
    rest.remove_suffix(1);
  }
  const std::size_t value_end = std::min(rest.find_first_of(" \t"), rest.size());
  if (!parse_value(rest.substr(0, value_end), sample.value)) return {};
  rest = trim(rest.substr(value_end));
  // OpenMetrics may end a line with an exemplar.
  rest = trim(rest.substr(0, rest.find('#')));
  if (!rest.empty() && !is_timestamp(rest)) return {};
  return sample;
}

std::optional<std::string> PrometheusSample::label(std::string_view label_name) const {
  std::optional<std::string> found;
  Cursor cursor{labels};
  walk_labels(cursor, [&](std::string_view name_here, std::string_view escaped) {
    if (name_here != label_name) return true;
    found.emplace();
    for (std::size_t at = 0; at < escaped.size();) found->push_back(unescape(escaped, at));
    return false;
  });
  return found;
}

bool PrometheusSample::label_is(std::string_view label_name, std::string_view wanted) const {
  bool is = false;
  Cursor cursor{labels};
  walk_labels(cursor, [&](std::string_view name_here, std::string_view escaped) {
    if (name_here != label_name) return true;
    std::size_t at = 0;
    std::size_t matched = 0;
    while (at < escaped.size() && matched < wanted.size()) {
      if (unescape(escaped, at) != wanted[matched]) return false;
      ++matched;
    }
    is = at == escaped.size() && matched == wanted.size();
    return false;
  });
  return is;
}

}  // namespace pointsman
