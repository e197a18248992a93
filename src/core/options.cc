#include "core/options.h"

namespace pointsman {

std::string to_text(const OptionValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  // The shortest digits that read back as the same number, without an exponent where the number is
  // of a size that people write out.
  const double number = std::get<double>(value);
  const bool plain =
      number == 0 || (number > -1e15 && number < 1e15 && (number >= 1e-6 || number <= -1e-6));
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number,
                                 plain ? std::chars_format::fixed : std::chars_format::general);
  return {buffer, end.ptr};
}

namespace options_detail {

Error wrong_type(std::string_view name, std::string_view what, const OptionValue& got) {
  return {ErrorKind::kClient, "option '" + std::string(name) + "' takes a" +
                                  (what == "integer" ? "n " : " ") + std::string(what) + ", not '" +
                                  to_text(got) + "'"};
}

Error out_of_range(std::string_view name, double got, double low, double high) {
  return {ErrorKind::kClient, "option '" + std::string(name) + "' is " + to_text(got) +
                                  ", allowed are " + to_text(low) + " to " + to_text(high)};
}

}  // namespace options_detail
}  // namespace pointsman
