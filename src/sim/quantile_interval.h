#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pointsman::sim {

// The q-quantile of `values`, 0 <= q <= 1: the smallest value that at least the share q of all does
// not exceed. 0 where there is none. Reorders `values`.
[[nodiscard]] double quantile(std::vector<double>& values, double q);

struct QuantileInterval {
  double value = 0;
  double low = 0;  // of the interval that covers in 95 % of the experiments
  double high = 0;
};

// A measurement, and the group that it belongs to.
struct GroupedValue {
  std::uint64_t group = 0;
  double value = 0;
};

// A quantile with its 95 % percentile-bootstrap interval (Efron 1979): the quantile of `rounds`
// samples drawn from `values` with replacement. Whole groups are drawn, since the turns of one
// conversation resemble each other; drawn one by one they would make the interval too narrow.
// What the interval does not show: values of different groups that depend on each other, as those
// of requests that waited behind the same long prompt do.
[[nodiscard]] QuantileInterval quantile_interval(std::span<const GroupedValue> values, double q,
                                                 std::uint64_t seed, int rounds = 1'000);

}  // namespace pointsman::sim
