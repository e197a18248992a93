#pragma once

#include <span>

namespace pointsman::sim {

// A mean over independent runs and the 95 % confidence interval of that mean. One run tells
// nothing of its own spread: the ends of its interval are NaN.
struct Estimate {
  double mean = 0;
  double low = 0;
  double high = 0;

  [[nodiscard]] bool contains(double value) const { return low <= value && value <= high; }
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

// The two-sided quantile of Student's t distribution (1908): the value that the absolute of a
// variable with `degrees` degrees of freedom stays below with probability `confidence`, in (0, 1).
// `degrees` at least 1. Exact to about 1e-12: the distribution in its closed form of sines and
// cosines (Abramowitz and Stegun, 26.7.3 and 26.7.4), inverted by bisection.
[[nodiscard]] double student_t(int degrees, double confidence = 0.95);

// Arithmetic mean, for rates, shares and counts. No values: all zero.
[[nodiscard]] Estimate arithmetic_mean(std::span<const double> values);

// Geometric mean, for times: Student's interval on the logarithms, since the times of heavy-tailed
// runs spread by factors. A value that is not above zero has no logarithm; where there is one, the
// arithmetic mean is given instead.
[[nodiscard]] Estimate geometric_mean(std::span<const double> values);

// The geometric mean of above[i] / below[i]. Paired by run: with common random numbers both saw the
// same arrivals, so what varies from seed to seed falls out. Both spans have the same length, and
// pairs of which one is not above zero are left out.
[[nodiscard]] Estimate paired_ratio(std::span<const double> above, std::span<const double> below);

// The estimate with the ends of its interval cut to [least, most], outside of which no value can
// lie: Student's interval knows of no bounds. Ends that are unknown stay so.
[[nodiscard]] Estimate within(Estimate estimate, double least, double most);

// The middle value, or the mean of the two middle ones. 0 where there is none.
[[nodiscard]] double median(std::span<const double> values);

// The median with a 95 % interval of order statistics: it needs no assumption on the distribution
// (David and Nagaraja, "Order Statistics", 7.1). With fewer than six values it is their range,
// which covers less; of a single value it is unknown.
[[nodiscard]] Estimate median_estimate(std::span<const double> values);

// The same for ratios, all above zero: between two middle ones lies their geometric mean, so that
// the ratios turned over give the median turned over.
[[nodiscard]] Estimate median_ratio(std::span<const double> ratios);

// A share, `hits` of `all`, with Wilson's 95 % score interval (1927), which holds for few cases
// and near 0 and 1 as well. 0 of 0: the interval is [0, 1].
[[nodiscard]] Estimate share_estimate(std::size_t hits, std::size_t all);

// The share of the values that lie above `limit`.
[[nodiscard]] Estimate share_above(std::span<const double> values, double limit);

}  // namespace pointsman::sim
