#include "base/json_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace pointsman {
namespace {

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return text.substr(std::min(begin, text.size()));
}

}  // namespace

void JsonLine::skip_blanks() {
  rest_ = without_blanks(rest_);
}

bool JsonLine::take(char wanted) {
  skip_blanks();
  if (!rest_.starts_with(wanted)) return false;
  rest_.remove_prefix(1);
  return true;
}

std::optional<std::string_view> JsonLine::string() {
  if (!take('"')) return std::nullopt;
  std::size_t end = 0;
  while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
  if (end >= rest_.size()) return std::nullopt;
  const std::string_view text = rest_.substr(0, end);
  rest_.remove_prefix(end + 1);
  return text;
}

// A list or an object, with its brackets.
std::optional<std::string_view> JsonLine::nested() {
  const std::string_view whole = rest_;
  std::size_t depth = 0;
  do {
    const std::size_t at = rest_.find_first_of("\"[]{}");
    if (at == std::string_view::npos) return std::nullopt;
    const char found = rest_[at];
    rest_.remove_prefix(at);
    if (found == '"') {
      if (!string()) return std::nullopt;
      continue;
    }
    rest_.remove_prefix(1);
    depth += found == '[' || found == '{' ? 1 : std::size_t{0} - 1;
  } while (depth > 0);
  return whole.substr(0, whole.size() - rest_.size());
}

bool JsonLine::value(Field& field) {
  skip_blanks();
  if (rest_.starts_with('"')) {
    const std::optional<std::string_view> text = string();
    field.kind = Kind::kText;
    field.text = text.value_or(std::string_view());
    return text.has_value();
  }
  if (rest_.starts_with('[') || rest_.starts_with('{')) {
    field.kind = rest_.front() == '[' ? Kind::kList : Kind::kObject;
    const std::optional<std::string_view> text = nested();
    field.text = text.value_or(std::string_view());
    return text.has_value();
  }
  constexpr std::pair<std::string_view, Kind> kWords[] = {
      {"true", Kind::kTrue}, {"false", Kind::kFalse}, {"null", Kind::kNull}};
  for (const auto& [word, kind] : kWords) {
    if (!rest_.starts_with(word)) continue;
    rest_.remove_prefix(word.size());
    field.kind = kind;
    field.text = word;
    return true;
  }
  const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), field.number);
  if (read.ec != std::errc() || !std::isfinite(field.number)) return false;
  field.kind = Kind::kNumber;
  field.text = rest_.substr(0, static_cast<std::size_t>(read.ptr - rest_.data()));
  rest_.remove_prefix(field.text.size());
  return true;
}

std::optional<JsonLine::Field> JsonLine::next() {
  if (ended_) return std::nullopt;
  const auto end = [this](std::string_view problem) {
    ended_ = true;
    problem_ = problem;
    return std::nullopt;
  };
  const bool first = !std::exchange(begun_, true);
  if (first && !take('{')) return end("is not a JSON object");
  if (take('}')) {
    skip_blanks();
    return end(rest_.empty() ? std::string_view() : "has something after its object");
  }
  if (!first && !take(',')) return end("does not end as a JSON object does");
  Field field;
  const std::optional<std::string_view> key = string();
  if (!key || !take(':')) return end("is not a JSON object of keys and values");
  field.key = *key;
  if (!value(field)) return end("has a value that is no JSON");
  return field;
}

JsonNumbers::JsonNumbers(std::string_view list)
    : rest_(list.size() >= 2 ? list.substr(1, list.size() - 2) : std::string_view()) {}

std::optional<double> JsonNumbers::next() {
  rest_ = without_blanks(rest_);
  double number = 0;
  const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
  if (read.ec != std::errc() || !std::isfinite(number)) return std::nullopt;
  rest_.remove_prefix(static_cast<std::size_t>(read.ptr - rest_.data()));
  rest_ = without_blanks(rest_);
  if (rest_.starts_with(',')) rest_.remove_prefix(1);
  return number;
}

}  // namespace pointsman
