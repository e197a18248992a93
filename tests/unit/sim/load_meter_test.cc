#include "sim/load_meter.h"

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

constexpr TimePoint at(int seconds) {
  return TimePoint{std::chrono::seconds(seconds)};
}

TEST(LoadMeter, AveragesOverTimeAndReplicas) {
  LoadMeter meter(2);
  meter.change(0, 1, at(0));   // before the window: counts as what is there
  meter.begin(at(10));         // loads 1, 0: mean 0.5, deviation 0.5
  meter.change(1, 1, at(14));  // loads 1, 1: all alike
  meter.change(0, 1, at(16));
  meter.change(0, 1, at(16));  // loads 3, 1: mean 2, deviation 1
  meter.end(at(20));
  meter.change(0, -3, at(30));  // after the window
  EXPECT_DOUBLE_EQ(meter.seconds(), 10);
  EXPECT_DOUBLE_EQ(meter.mean_total(), (4 * 1 + 2 * 2 + 4 * 4) / 10.0);
  EXPECT_DOUBLE_EQ(meter.mean_cv(), (4 * 1.0 + 2 * 0.0 + 4 * 0.5) / 10.0);
  EXPECT_EQ(meter.total(), 1);
  EXPECT_EQ(meter.load(1), 1);
}

}  // namespace
}  // namespace pointsman::sim
