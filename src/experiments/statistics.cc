#include "experiments/statistics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <vector>

namespace pointsman::sim {
namespace {

// P(|T| <= t) for T with `degrees` degrees of freedom. Abramowitz and Stegun, 26.7.3 (odd) and
// 26.7.4 (even), with theta = atan(t / sqrt(degrees)).
double probability_within(double t, int degrees) {
  const double theta = std::atan(t / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(theta);
  const double square = cosine * cosine;
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1.0;
  double sum = degrees == 1 ? 0.0 : term;
  for (int k = odd ? 3 : 2; k <= degrees - 2; k += 2) {
    term *= square * (k - 1) / k;
    sum += term;
  }
  const double series = std::sin(theta) * sum;
  return odd ? 2 / std::numbers::pi * (theta + series) : series;
}

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Mean and half width of its interval.
struct Spread {
  double mean = 0;
  double half = 0;
};

bool all_equal(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(),
                     [&](double value) { return value == values.front(); });
}

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  // What is set and not measured has the same value in every run. It is given back to the last
  // bit: a sum of twenty times 0.2, or a logarithm and back, would show as 0.20000000000000004.
  if (all_equal(values)) return {values.front(), values.size() == 1 ? kUnknown : 0.0};
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value;
  mean /= count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  return {mean, student_t(static_cast<int>(values.size()) - 1) * deviation / std::sqrt(count)};
}

Estimate from_logarithms(std::span<const double> logarithms) {
  const Spread found = spread(logarithms);
  return {std::exp(found.mean), std::exp(found.mean - found.half),
          std::exp(found.mean + found.half)};
}

}  // namespace

double student_t(int degrees, double confidence) {
  assert(degrees >= 1 && confidence > 0 && confidence < 1);
  double low = 0;
  double high = 1;
  while (probability_within(high, degrees) < confidence) high *= 2;
  // A double has 53 bits; two more steps and the bounds have met.
  for (int step = 0; step < 64 && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    (probability_within(middle, degrees) < confidence ? low : high) = middle;
  }
  return high;
}

Estimate arithmetic_mean(std::span<const double> values) {
  const Spread found = spread(values);
  return {found.mean, found.mean - found.half, found.mean + found.half};
}

Estimate geometric_mean(std::span<const double> values) {
  if (all_equal(values)) return arithmetic_mean(values);
  std::vector<double> logarithms;
  for (const double value : values) {
    if (!(value > 0)) return arithmetic_mean(values);
    logarithms.push_back(std::log(value));
  }
  return from_logarithms(logarithms);
}

Estimate paired_ratio(std::span<const double> above, std::span<const double> below) {
  assert(above.size() == below.size());
  std::vector<double> logarithms;
  for (std::size_t i = 0; i < above.size(); ++i) {
    if (above[i] > 0 && below[i] > 0) logarithms.push_back(std::log(above[i] / below[i]));
  }
  if (logarithms.empty()) return {};
  return from_logarithms(logarithms);
}

Estimate within(Estimate estimate, double least, double most) {
  const auto cut = [least, most](double value) {
    return value < least ? least : value > most ? most : value;  // NaN stays
  };
  return {estimate.mean, cut(estimate.low), cut(estimate.high)};
}

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

Estimate median_estimate(std::span<const double> values) {
  if (values.empty()) return {};
  if (values.size() == 1) return {values.front(), kUnknown, kUnknown};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  // The interval from the k-th smallest to the k-th largest misses the median where fewer than k
  // values, or more than n - k, lie below it: twice the binomial tail below k. The largest k is
  // taken that keeps this within 5 %.
  const auto binomial = [count](double below) {
    return std::exp(std::lgamma(count + 1) - std::lgamma(below + 1) -
                    std::lgamma(count - below + 1) - count * std::numbers::ln2);
  };
  double tail = binomial(0);
  std::size_t k = 0;
  while (2 * tail <= 0.05) tail += binomial(static_cast<double>(++k));
  const std::size_t first = k == 0 ? 0 : k - 1;
  return {median(values), sorted[first], sorted[sorted.size() - 1 - first]};
}

Estimate median_ratio(std::span<const double> ratios) {
  if (ratios.empty()) return {};
  std::vector<double> logarithms;
  for (const double ratio : ratios) logarithms.push_back(std::log(ratio));
  const Estimate found = median_estimate(logarithms);
  return {std::exp(found.mean), std::exp(found.low), std::exp(found.high)};
}

Estimate share_estimate(std::size_t hits, std::size_t all) {
  if (all == 0) return {0, 0, 1};
  static constexpr double kNormal = 1.959963984540054;  // the normal law's 97.5 % quantile
  const auto n = static_cast<double>(all);
  const double share = static_cast<double>(hits) / n;
  const double square = kNormal * kNormal;
  const double centre = (share + square / (2 * n)) / (1 + square / n);
  const double half =
      kNormal / (1 + square / n) * std::sqrt(share * (1 - share) / n + square / (4 * n * n));
  // Of none and of all one end is the share itself, but for rounding.
  return {share, hits == 0 ? 0.0 : centre - half, hits == all ? 1.0 : centre + half};
}

Estimate share_above(std::span<const double> values, double limit) {
  const auto hits =
      std::count_if(values.begin(), values.end(), [limit](double value) { return value > limit; });
  return share_estimate(static_cast<std::size_t>(hits), values.size());
}

}  // namespace pointsman::sim
