#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace pointsman::sim {

// One equation of a linear model: value = sum of coefficient · term. Equations are weighed by
// 1 / scale, so that with scale = value errors count relative to the value.
struct Equation {
  static constexpr std::size_t kTerms = 4;

  std::array<double, kTerms> terms{};
  double value = 0;
  double scale = 1;
};

struct Solution {
  std::array<double, Equation::kTerms> coefficients{};
  double loss = 0;  // mean of Huber's function of the residuals over their scale
};

// Robust least squares: Huber's M-estimator ("Robust Estimation of a Location Parameter", 1964) by
// iteratively reweighted least squares, residuals beyond 1.345 robust standard deviations (1.4826 ·
// the median absolute one) counting linearly. Only the terms that `used` names take part, and the
// coefficients are not negative where `positive` says so: a term that would be is left out.
// Nothing where the equations do not determine the coefficients.
[[nodiscard]] std::optional<Solution> solve_robustly(std::span<const Equation> equations,
                                                     std::array<bool, Equation::kTerms> used,
                                                     std::array<bool, Equation::kTerms> positive);

}  // namespace pointsman::sim
