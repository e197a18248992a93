#include "proxy/allowance.h"

#include <chrono>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Allowance, ABurstThenSoManyASecond) {
  TimePoint now{seconds(100)};
  Allowance allowance(10, 5, now);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(allowance.take(1, now));
  EXPECT_FALSE(allowance.take(1, now));
  now += seconds(1);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(allowance.take(1, now));
  EXPECT_FALSE(allowance.take(1, now));
}

TEST(Allowance, AskingOftenLosesNothing) {
  TimePoint now{seconds(100)};
  Allowance allowance(10, 5, now);
  EXPECT_TRUE(allowance.take(10, now));
  int taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    now += milliseconds(1);
    if (allowance.take(1, now)) ++taken;
  }
  EXPECT_EQ(taken, 50);
}

TEST(Allowance, NeverMoreThanTheBurst) {
  TimePoint now{seconds(100)};
  Allowance allowance(10, 5, now);
  allowance.give(100);
  now += std::chrono::hours(24 * 3650);
  EXPECT_FALSE(allowance.take(11, now));
  EXPECT_TRUE(allowance.take(10, now));
  EXPECT_FALSE(allowance.take(1, now));
  allowance.give(3);
  EXPECT_TRUE(allowance.take(3, now));
}

}  // namespace
}  // namespace pointsman
