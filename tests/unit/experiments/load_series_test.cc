#include "experiments/load_series.h"

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

FinishedRequest stay(ReplicaIndex replica, Duration arrived, Duration ended, bool measured = true) {
  return {.replica = replica,
          .arrived = kRunBegin + arrived,
          .ended = kRunBegin + ended,
          .measured = measured};
}

TEST(LoadSeries, CountsFromTheArrivalUntilTheEnd) {
  LoadSeries series(2);
  series.request_finished(stay(0, seconds(1), seconds(4)));
  series.request_finished(stay(0, milliseconds(1'500), seconds(2)));
  series.request_finished(stay(1, seconds(3), seconds(9)));
  series.request_finished(stay(1, Duration::zero(), milliseconds(100)));
  const auto loads = series.sampled(seconds(1), seconds(6), milliseconds(500));
  ASSERT_EQ(loads.size(), 2U);
  // At 1, 1.5, 2, …, 5.5 s.
  EXPECT_EQ(loads[0], (std::vector<double>{1, 2, 1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(loads[1], (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST(LoadSeries, WhatBeganBeforeTheFirstSampleIsInIt) {
  LoadSeries series(1);
  series.request_finished(stay(0, seconds(1), seconds(20)));
  series.request_finished(stay(0, seconds(2), seconds(3)));
  EXPECT_EQ(series.sampled(seconds(10), seconds(12), seconds(1)),
            (std::vector<std::vector<double>>{{1, 1}}));
  EXPECT_EQ(series.sampled(seconds(10), seconds(10), seconds(1)),
            (std::vector<std::vector<double>>{{}}));
}

TEST(LoadSeries, FavouriteIsTheShareOfTheReplicaThatGotMostInEachWindow) {
  LoadSeries series(2);
  // Before the first whole window of measured arrivals.
  series.request_finished(stay(1, milliseconds(1'900), seconds(20)));
  // From 2 to 4 s: three of four to one replica, whether measured or not.
  series.request_finished(stay(0, seconds(2), seconds(20)));
  series.request_finished(stay(0, milliseconds(2'500), seconds(20), false));
  series.request_finished(stay(1, milliseconds(2'600), seconds(20)));
  series.request_finished(stay(0, milliseconds(3'999), seconds(20)));
  // From 4 to 6 s: both of two.
  series.request_finished(stay(1, seconds(4), seconds(20)));
  series.request_finished(stay(1, seconds(5), seconds(20)));
  // Of a window that is not whole.
  series.request_finished(stay(0, seconds(6), seconds(20)));
  EXPECT_DOUBLE_EQ(series.favourite_share(seconds(2)), 5.0 / 6);
}

TEST(LoadSeries, SwingIsTheRangeWithinAWindowOverTheMean) {
  LoadSeries series(2);
  // Replica 0 holds one request all the time, and three more in the second half of each window of
  // two seconds; replica 1 always holds two.
  series.request_finished(stay(0, Duration::zero(), seconds(30)));
  series.request_finished(stay(1, Duration::zero(), seconds(30)));
  series.request_finished(stay(1, Duration::zero(), seconds(30)));
  for (int window = 0; window < 4; ++window) {
    for (int i = 0; i < 3; ++i) {
      series.request_finished(stay(0, seconds(2 * window + 1), seconds(2 * window + 2)));
    }
  }
  series.request_finished(stay(1, seconds(8), seconds(8)));
  // Ranges 3 and 0, means 1 + 3/2 and 2.
  EXPECT_DOUBLE_EQ(series.swing(seconds(2)), 3.0 / (2.5 + 2));
}

TEST(LoadSeries, NothingMeasuredGivesZero) {
  LoadSeries series(2);
  EXPECT_EQ(series.swing(seconds(2)), 0);
  EXPECT_EQ(series.favourite_share(seconds(2)), 0);
  series.request_finished(stay(0, seconds(2), seconds(20), false));
  EXPECT_EQ(series.swing(seconds(2)), 0);
  EXPECT_EQ(series.favourite_share(seconds(2)), 0);
}

}  // namespace
}  // namespace pointsman::sim
