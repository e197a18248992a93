#include "experiments/least_squares.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pointsman::sim {
namespace {

constexpr std::size_t kTerms = Equation::kTerms;
constexpr double kHuber = 1.345;
constexpr int kRounds = 8;
// Residuals below this share of the value are rounding.
constexpr double kLeastSpread = 1e-6;

using Used = std::array<bool, kTerms>;

double residual(const Equation& equation, const std::array<double, kTerms>& coefficients) {
  double value = equation.value;
  for (std::size_t i = 0; i < kTerms; ++i) value -= coefficients[i] * equation.terms[i];
  return value / equation.scale;
}

// The normal equations, in columns of length one, by elimination with the largest pivot.
std::optional<std::array<double, kTerms>> solve(std::span<const Equation> equations,
                                                std::span<const double> weights, const Used& used) {
  std::array<double, kTerms> length{};
  for (std::size_t n = 0; n < equations.size(); ++n) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      const double term = equations[n].terms[i] / equations[n].scale;
      length[i] += weights[n] * term * term;
    }
  }
  std::array<std::array<double, kTerms + 1>, kTerms> rows{};
  for (std::size_t i = 0; i < kTerms; ++i) {
    length[i] = std::sqrt(length[i]);
    if (used[i] && !(length[i] > 0)) return std::nullopt;
    if (!used[i]) rows[i][i] = 1;
  }
  for (std::size_t n = 0; n < equations.size(); ++n) {
    const Equation& equation = equations[n];
    const double weight = weights[n] / (equation.scale * equation.scale);
    for (std::size_t i = 0; i < kTerms; ++i) {
      if (!used[i]) continue;
      const double term = weight * equation.terms[i] / length[i];
      for (std::size_t j = 0; j < kTerms; ++j) {
        if (used[j]) rows[i][j] += term * equation.terms[j] / length[j];
      }
      rows[i][kTerms] += term * equation.value;
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    std::size_t pivot = i;
    for (std::size_t j = i + 1; j < kTerms; ++j) {
      if (std::abs(rows[j][i]) > std::abs(rows[pivot][i])) pivot = j;
    }
    if (std::abs(rows[pivot][i]) < 1e-9) return std::nullopt;  // columns that say the same
    std::swap(rows[i], rows[pivot]);
    for (std::size_t j = 0; j < kTerms; ++j) {
      if (j == i) continue;
      const double factor = rows[j][i] / rows[i][i];
      for (std::size_t k = i; k <= kTerms; ++k) rows[j][k] -= factor * rows[i][k];
    }
  }
  std::array<double, kTerms> coefficients{};
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (used[i]) coefficients[i] = rows[i][kTerms] / rows[i][i] / length[i];
  }
  return coefficients;
}

std::optional<Solution> reweighted(std::span<const Equation> equations, const Used& used) {
  std::vector<double> weights(equations.size(), 1.0);
  std::vector<double> sizes(equations.size());
  Solution solution;
  for (int round = 0; round < kRounds; ++round) {
    const auto coefficients = solve(equations, weights, used);
    if (!coefficients) return std::nullopt;
    solution.coefficients = *coefficients;
    for (std::size_t n = 0; n < equations.size(); ++n) {
      sizes[n] = std::abs(residual(equations[n], *coefficients));
    }
    std::vector<double> order = sizes;
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
    std::nth_element(order.begin(), middle, order.end());
    const double bend = kHuber * std::max(1.4826 * *middle, kLeastSpread);
    for (std::size_t n = 0; n < equations.size(); ++n) {
      weights[n] = sizes[n] <= bend ? 1.0 : bend / sizes[n];
    }
  }
  // With a bend that does not depend on the fit, so that fits can be compared.
  constexpr double kBend = 0.05;
  for (const double size : sizes) {
    solution.loss += size <= kBend ? size * size / 2 : kBend * (size - kBend / 2);
  }
  solution.loss /= static_cast<double>(std::max<std::size_t>(1, sizes.size()));
  return solution;
}

}  // namespace

std::optional<Solution> solve_robustly(std::span<const Equation> equations,
                                       std::array<bool, kTerms> used,
                                       std::array<bool, kTerms> positive) {
  if (equations.empty()) return std::nullopt;
  for (;;) {
    const std::optional<Solution> solution = reweighted(equations, used);
    if (!solution) return std::nullopt;
    bool again = false;
    for (std::size_t i = 0; i < kTerms; ++i) {
      if (used[i] && positive[i] && solution->coefficients[i] < 0) {
        used[i] = false;
        again = true;
      }
    }
    if (!again) return solution;
  }
}

}  // namespace pointsman::sim
