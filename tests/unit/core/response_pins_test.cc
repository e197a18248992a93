#include "core/response_pins.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::minutes;

TEST(ResponsePins, FindsTheReplicaThatMadeTheResponse) {
  const ManualClock clock;
  ResponsePins pins({});
  pins.learn(1, 7, clock.now());
  pins.learn(2, 8, clock.now());
  EXPECT_EQ(pins.find(1, clock.now()), 7U);
  EXPECT_EQ(pins.find(2, clock.now()), 8U);
  EXPECT_EQ(pins.find(3, clock.now()), std::nullopt);
}

TEST(ResponsePins, EntriesLastAnHour) {
  ManualClock clock;
  ResponsePins pins({});
  pins.learn(1, 7, clock.now());
  clock.advance(minutes(60));
  EXPECT_EQ(pins.find(1, clock.now()), 7U);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(pins.find(1, clock.now()), std::nullopt);
  EXPECT_EQ(pins.size(), 0U);
}

TEST(ResponsePins, LearningAgainRenewsTheHour) {
  ManualClock clock;
  ResponsePins pins({});
  pins.learn(1, 7, clock.now());
  clock.advance(minutes(50));
  pins.learn(1, 9, clock.now());
  clock.advance(minutes(50));
  EXPECT_EQ(pins.find(1, clock.now()), 9U);
  EXPECT_EQ(pins.size(), 1U);
}

TEST(ResponsePins, LeastRecentlyUsedGoesFirst) {
  const ManualClock clock;
  ResponsePins pins({.capacity = 3});
  pins.learn(1, 1, clock.now());
  pins.learn(2, 2, clock.now());
  pins.learn(3, 3, clock.now());
  EXPECT_EQ(pins.find(1, clock.now()), 1U);
  pins.learn(4, 4, clock.now());
  EXPECT_EQ(pins.size(), 3U);
  EXPECT_EQ(pins.find(2, clock.now()), std::nullopt);
  EXPECT_EQ(pins.find(1, clock.now()), 1U);
  EXPECT_EQ(pins.find(3, clock.now()), 3U);
  EXPECT_EQ(pins.find(4, clock.now()), 4U);
}

TEST(ResponsePins, NumberIsBounded) {
  const ManualClock clock;
  ResponsePins pins({});
  for (std::uint64_t id = 0; id < 250'000; ++id) pins.learn(id, 0, clock.now());
  EXPECT_EQ(pins.size(), 100'000U);
  EXPECT_EQ(pins.find(149'999, clock.now()), std::nullopt);
  EXPECT_EQ(pins.find(150'000, clock.now()), 0U);
}

TEST(ResponsePins, ForgetsAReplicaAndNoOther) {
  const ManualClock clock;
  ResponsePins pins({});
  for (std::uint64_t id = 0; id < 100; ++id) pins.learn(id, id % 2, clock.now());
  pins.forget(1);
  EXPECT_EQ(pins.size(), 50U);
  EXPECT_EQ(pins.find(1, clock.now()), std::nullopt);
  EXPECT_EQ(pins.find(2, clock.now()), 0U);
}

TEST(ResponsePins, CapacityZeroKeepsNothing) {
  const ManualClock clock;
  ResponsePins pins({.capacity = 0});
  pins.learn(1, 1, clock.now());
  EXPECT_EQ(pins.size(), 0U);
}

}  // namespace
}  // namespace pointsman
