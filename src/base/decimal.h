#pragma once

#include <charconv>
#include <cmath>

namespace pointsman {

// A float as the double that people expect to read: the one nearest to the shortest decimal that
// names the float, so that 0.1F becomes 0.1 and not 0.10000000149011612. What is not finite stays.
inline double decimal(float value) {
  if (!std::isfinite(value)) return value;
  char text[32];
  const char* const end = std::to_chars(text, text + sizeof(text), value).ptr;
  double widened = value;
  std::from_chars(text, end, widened);
  return widened;
}

}  // namespace pointsman
