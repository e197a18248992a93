#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pointsman {

// A check of an option: a number from `low` to `high`. CLI::Range lets NaN pass, since no
// comparison with it is true.
inline CLI::Validator number_range(double low, double high) {
  const std::string range = CLI::detail::to_string(low) + " to " + CLI::detail::to_string(high);
  return {[low, high, range](std::string& text) -> std::string {
            double value = 0;
            const bool fits =
                CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
            return fits ? std::string() : "'" + text + "' is not a number from " + range;
          },
          "NUMBER " + range, "number range"};
}

}  // namespace pointsman
