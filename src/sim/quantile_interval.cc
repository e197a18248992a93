#include "sim/quantile_interval.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/rng.h"

namespace pointsman::sim {

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<std::size_t>(std::max(0.0, std::ceil(q * count) - 1.0));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::min(rank, values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

QuantileInterval quantile_interval(std::span<const GroupedValue> values, double q,
                                   std::uint64_t seed, int rounds) {
  std::vector<std::vector<double>> groups;
  std::unordered_map<std::uint64_t, std::size_t> place;
  std::vector<double> sample;
  for (const GroupedValue& one : values) {
    const auto [found, added] = place.emplace(one.group, groups.size());
    if (added) groups.emplace_back();
    groups[found->second].push_back(one.value);
    sample.push_back(one.value);
  }
  QuantileInterval interval;
  if (groups.empty()) return interval;
  interval.value = quantile(sample, q);

  Rng rng(seed);
  std::vector<double> drawn;
  for (int round = 0; round < rounds; ++round) {
    sample.clear();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::vector<double>& group = groups[rng.below(groups.size())];
      sample.insert(sample.end(), group.begin(), group.end());
    }
    drawn.push_back(quantile(sample, q));
  }
  interval.low = quantile(drawn, 0.025);
  interval.high = quantile(drawn, 0.975);
  return interval;
}

}  // namespace pointsman::sim
