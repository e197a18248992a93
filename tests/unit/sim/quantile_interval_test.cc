#include "sim/quantile_interval.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

TEST(Quantile, IsTheSmallestValueThatTheShareDoesNotExceed) {
  std::vector<double> values{5, 1, 4, 2, 3};
  EXPECT_EQ(quantile(values, 0.0), 1);
  EXPECT_EQ(quantile(values, 0.2), 1);
  EXPECT_EQ(quantile(values, 0.5), 3);
  EXPECT_EQ(quantile(values, 0.99), 5);
  EXPECT_EQ(quantile(values, 1.0), 5);
  std::vector<double> none;
  EXPECT_EQ(quantile(none, 0.5), 0);
}

TEST(QuantileInterval, CoversTheTrueMedianAboutAsOftenAsItSays) {
  int covered = 0;
  constexpr int kTrials = 300;
  for (int trial = 0; trial < kTrials; ++trial) {
    Rng rng(static_cast<std::uint64_t>(trial) + 1);
    std::vector<GroupedValue> values;
    for (std::uint64_t i = 0; i < 200; ++i) values.push_back({i, rng.unit()});
    const QuantileInterval interval = quantile_interval(values, 0.5, 9, 200);
    EXPECT_LE(interval.low, interval.value);
    EXPECT_GE(interval.high, interval.value);
    if (interval.low <= 0.5 && 0.5 <= interval.high) ++covered;
  }
  // 95 % of 300, and five standard deviations below.
  EXPECT_GE(covered, 266);
}

TEST(QuantileInterval, EqualTurnsOfAConversationDoNotNarrowIt) {
  Rng rng(4);
  std::vector<GroupedValue> once;
  std::vector<GroupedValue> tenfold;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const double value = rng.unit();
    once.push_back({i, value});
    for (int turn = 0; turn < 10; ++turn) tenfold.push_back({i, value});
  }
  const QuantileInterval a = quantile_interval(once, 0.5, 1);
  const QuantileInterval b = quantile_interval(tenfold, 0.5, 1);
  EXPECT_NEAR(a.high - a.low, b.high - b.low, 0.02);
}

TEST(QuantileInterval, RepeatsWithItsSeed) {
  const std::vector<GroupedValue> values{{1, 1}, {1, 2}, {2, 3}, {3, 4}};
  EXPECT_EQ(quantile_interval(values, 0.5, 1).high, quantile_interval(values, 0.5, 1).high);
  EXPECT_EQ(quantile_interval({}, 0.5, 1).value, 0);
}

}  // namespace
}  // namespace pointsman::sim
