#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pointsman {

// Reads one JSON object that stands in a line of its own, field by field, without building
// anything: for logs and traces of many lines.
//
//   JsonLine line(text);
//   while (const std::optional<JsonLine::Field> field = line.next()) …
//   if (!line.problem().empty()) …
//
// Texts are given as they are written, escapes and all; lists and objects as a slice of the line,
// looked into only as far as their end must be found. Lists of numbers can be read with
// JsonNumbers. Views are of the text that was given.
class JsonLine {
 public:
  enum class Kind : std::uint8_t { kText, kNumber, kTrue, kFalse, kNull, kList, kObject };
  struct Field {
    std::string_view key;
    Kind kind = Kind::kNull;
    std::string_view text;  // of a text between its quotes; else the value as it is written
    double number = 0;
  };

  explicit JsonLine(std::string_view text) : rest_(text) {}

  // The next field; nothing at the end of the object, and where a problem was found.
  [[nodiscard]] std::optional<Field> next();
  // What is wrong, as the end of "the line …"; empty: nothing.
  [[nodiscard]] std::string_view problem() const { return problem_; }

 private:
  void skip_blanks();
  bool take(char wanted);
  std::optional<std::string_view> string();
  std::optional<std::string_view> nested();
  bool value(Field& field);

  std::string_view rest_;
  std::string_view problem_;
  bool begun_ = false;
  bool ended_ = false;
};

// The numbers of a list, as JsonLine gives it, one after the other.
class JsonNumbers {
 public:
  explicit JsonNumbers(std::string_view list);

  // The next one; nothing at the end, and where something else stands.
  [[nodiscard]] std::optional<double> next();

 private:
  std::string_view rest_;
};

}  // namespace pointsman
