#include "net/timer_wheel.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class TimerWheelTest : public ::testing::Test {
 protected:
  void advance(Duration by) {
    const TimePoint end = clock_.now() + by;
    while (clock_.now() < end) {
      clock_.set(std::min(end, clock_.now() + milliseconds(10)));
      wheel_.advance();
    }
  }

  ManualClock clock_;
  TimerWheel wheel_{clock_};
};

TEST_F(TimerWheelTest, ExpiresOnceNeverEarlyAndAtMostOneTickLate) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    clock_.advance(milliseconds(rng.below(50)));
    wheel_.advance();
    const Duration delay = milliseconds(rng.below(90'000));
    const TimePoint due = clock_.now() + delay;
    TimePoint expired{};
    int count = 0;
    Timer timer([&] {
      ++count;
      expired = clock_.now();
    });
    wheel_.arm(timer, delay);
    EXPECT_TRUE(timer.armed());
    advance(delay + milliseconds(200));
    EXPECT_EQ(count, 1);
    EXPECT_FALSE(timer.armed());
    EXPECT_GE(expired, due);
    // One tick, the 10 ms step of the test, and the least delay of one tick.
    EXPECT_LE(expired - due, milliseconds(60));
  }
}

TEST_F(TimerWheelTest, ArmingAgainMovesTheTimeBothWays) {
  int count = 0;
  Timer timer([&] { ++count; });
  wheel_.arm(timer, seconds(1));
  for (int i = 0; i < 20; ++i) {
    advance(milliseconds(900));
    wheel_.arm(timer, seconds(1));
  }
  EXPECT_EQ(count, 0);
  wheel_.arm(timer, seconds(300));
  wheel_.arm(timer, milliseconds(100));
  advance(milliseconds(200));
  EXPECT_EQ(count, 1);
  advance(seconds(400));
  EXPECT_EQ(count, 1);
}

TEST_F(TimerWheelTest, CancelledAndDestroyedTimersStaySilent) {
  int count = 0;
  Timer cancelled([&] { ++count; });
  wheel_.arm(cancelled, seconds(1));
  cancelled.cancel();
  {
    Timer destroyed([&] { ++count; });
    wheel_.arm(destroyed, seconds(1));
  }
  advance(seconds(3));
  EXPECT_EQ(count, 0);
}

TEST_F(TimerWheelTest, CallbackMayArmItselfAgain) {
  int count = 0;
  Timer timer([&] {
    ++count;
    wheel_.arm(timer, milliseconds(100));
  });
  wheel_.arm(timer, milliseconds(100));
  advance(milliseconds(1000));
  EXPECT_GE(count, 5);
  EXPECT_LE(count, 10);
}

TEST_F(TimerWheelTest, CallbackMayDestroyItsTimerAndOthersOfTheSameTick) {
  std::vector<std::unique_ptr<Timer>> timers;
  int count = 0;
  for (int i = 0; i < 8; ++i) {
    timers.push_back(std::make_unique<Timer>([&] {
      ++count;
      timers.clear();
    }));
    wheel_.arm(*timers.back(), seconds(1));
  }
  advance(seconds(2));
  EXPECT_EQ(count, 1);
}

TEST_F(TimerWheelTest, ALongPauseExpiresEverythingDueAndNothingElse) {
  int due = 0;
  int later = 0;
  std::vector<std::unique_ptr<Timer>> timers;
  for (int s = 1; s <= 120; ++s) {
    timers.push_back(std::make_unique<Timer>([&, s] { s <= 100 ? ++due : ++later; }));
    wheel_.arm(*timers.back(), seconds(s));
  }
  clock_.advance(milliseconds(100'060));
  wheel_.advance();
  EXPECT_EQ(due, 100);
  EXPECT_EQ(later, 0);
  advance(seconds(21));
  EXPECT_EQ(later, 20);
}

TEST_F(TimerWheelTest, ZeroAndNegativeDelaysExpireAtTheNextTick) {
  int count = 0;
  Timer zero([&] { ++count; });
  Timer negative([&] { ++count; });
  wheel_.arm(zero, Duration::zero());
  wheel_.arm(negative, seconds(-5));
  wheel_.advance();
  EXPECT_EQ(count, 0);
  advance(milliseconds(100));
  EXPECT_EQ(count, 2);
}

TEST(TimerWheel, MayGoBeforeItsTimers) {
  ManualClock clock;
  Timer timer([] {});
  {
    TimerWheel wheel(clock);
    wheel.arm(timer, seconds(1));
  }
  EXPECT_FALSE(timer.armed());
}

}  // namespace
}  // namespace pointsman
