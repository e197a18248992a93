#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pointsman {

// One option of a stage, declared once in the stage's Options::fields(); parsing, range and
// unknown-key errors, `pointsman policies`, the schema and docs/policies.md all come from it.
template <typename Options, typename T>
struct Field {
  std::string_view name;
  T Options::* member;
  T low;
  T high;
  std::string_view help;
};
template <typename Options, typename T>
Field(std::string_view, T Options::*, std::type_identity_t<T>, std::type_identity_t<T>,
      std::string_view) -> Field<Options, T>;

// A switch. (bool has no range.)
template <typename Options>
struct Field<Options, bool> {
  std::string_view name;
  bool Options::* member;
  std::string_view help;
};
template <typename Options>
Field(std::string_view, bool Options::*, std::string_view) -> Field<Options, bool>;

// Of a stage without options.
struct NoOptions {
  static constexpr auto fields() { return std::tuple<>{}; }
};

// A value as the configuration gives it.
using OptionValue = std::variant<double, bool, std::string>;
using OptionMap = std::vector<std::pair<std::string, OptionValue>>;

// What people and tools see of an option.
struct OptionInfo {
  std::string name;
  std::string type;  // "number", "integer", "boolean"
  OptionValue default_value;
  double low = 0;
  double high = 0;
  std::string help;
};

// A number as a person would write it: 0.9, 16, 32768.
[[nodiscard]] std::string to_text(const OptionValue& value);

namespace options_detail {

// `what` is "number", "integer" or "boolean".
[[nodiscard]] Error wrong_type(std::string_view name, std::string_view what,
                               const OptionValue& got);
[[nodiscard]] Error out_of_range(std::string_view name, double got, double low, double high);

template <typename Options, typename T>
Result<void> assign(Options& options, const Field<Options, T>& field, const OptionValue& value) {
  const double* number = std::get_if<double>(&value);
  if constexpr (std::is_same_v<T, bool>) {
    const bool* flag = std::get_if<bool>(&value);
    if (flag == nullptr) return wrong_type(field.name, "boolean", value);
    options.*field.member = *flag;
  } else {
    constexpr bool kInteger = std::is_integral_v<T>;
    if (number == nullptr) return wrong_type(field.name, kInteger ? "integer" : "number", value);
    // The range first: a number beyond it may not fit any integer.
    if (!(*number >= static_cast<double>(field.low) &&
          *number <= static_cast<double>(field.high))) {
      return out_of_range(field.name, *number, static_cast<double>(field.low),
                          static_cast<double>(field.high));
    }
    if (kInteger && *number != static_cast<double>(static_cast<long long>(*number))) {
      return wrong_type(field.name, "integer", value);
    }
    options.*field.member = static_cast<T>(*number);
  }
  return {};
}

template <typename Options, typename T>
OptionInfo describe(const Options& defaults, const Field<Options, T>& field) {
  if constexpr (std::is_same_v<T, bool>) {
    return {std::string(field.name), "boolean", defaults.*field.member, 0, 1,
            std::string(field.help)};
  } else {
    return {std::string(field.name),
            std::is_integral_v<T> ? "integer" : "number",
            static_cast<double>(defaults.*field.member),
            static_cast<double>(field.low),
            static_cast<double>(field.high),
            std::string(field.help)};
  }
}

}  // namespace options_detail

// The options of a stage as information. `Options` must be default-constructible and have fields().
template <typename Options>
std::vector<OptionInfo> describe_options() {
  std::vector<OptionInfo> infos;
  std::apply(
      [&infos](const auto&... field) {
        [[maybe_unused]] const Options defaults;  // not by a stage without options
        (infos.push_back(options_detail::describe(defaults, field)), ...);
      },
      Options::fields());
  return infos;
}

// Sets every option that `map` gives. Keys that are not fields are ignored: the caller has checked
// them against describe_options(), since a preset hands the same map to several stages.
template <typename Options>
Result<Options> parse_options(const OptionMap& map) {
  Options options;
  Result<void> outcome;
  for (const auto& [key, value] : map) {
    std::apply(
        [&, &name = key, &given = value](const auto&... field) {
          (
              [&] {
                if (outcome && field.name == name) {
                  outcome = options_detail::assign(options, field, given);
                }
              }(),
              ...);
        },
        Options::fields());
    if (!outcome) return outcome.error();
  }
  return options;
}

}  // namespace pointsman
