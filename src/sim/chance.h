#pragma once

#include <cmath>
#include <cstdint>

#include "base/rng.h"

namespace pointsman::sim {

// Draws that give the same numbers on every machine with the same arithmetic.

// Spreads `value` over all 64 bits: splitmix64's finaliser. Neighbouring values give unrelated
// results, and no two values the same.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

// Standard normal, by Box and Muller 1958. 1 - unit() is above zero, as the logarithm needs.
[[nodiscard]] inline double draw_normal(Rng& rng) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - rng.unit()));
  return radius * std::cos(6.283185307179586 * rng.unit());
}

[[nodiscard]] inline double draw_exponential(Rng& rng, double mean) {
  return -mean * std::log(1.0 - rng.unit());
}

// Gamma with the given mean and coefficient of variation, by Marsaglia and Tsang 2000; cv 1 is
// exponential, cv 0 is the mean itself.
[[nodiscard]] inline double draw_gamma(Rng& rng, double mean, double cv) {
  if (cv == 1) return draw_exponential(rng, mean);
  if (cv <= 0) return mean;
  const double shape = 1 / (cv * cv);
  // Below 1 the method needs the shape above and a factor.
  const double raised = shape < 1 ? shape + 1 : shape;
  const double d = raised - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  double v = 0;
  for (;;) {
    const double x = draw_normal(rng);
    v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    const double u = 1.0 - rng.unit();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) break;
  }
  double drawn = d * v;
  if (shape < 1) drawn *= std::pow(1.0 - rng.unit(), 1 / shape);
  return drawn * mean / shape;
}

}  // namespace pointsman::sim
