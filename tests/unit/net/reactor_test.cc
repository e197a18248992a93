#include "net/reactor.h"

#include <vector>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(Reactor, RunsPostedTasksInOrderOnItsThread) {
  Reactor reactor;
  std::vector<int> order;
  std::thread::id ran_on;
  for (int i = 0; i < 5; ++i) reactor.post([&order, i] { order.push_back(i); });
  reactor.post([&] {
    ran_on = std::this_thread::get_id();
    reactor.stop();
  });
  std::thread thread([&] { reactor.run(); });
  const std::thread::id id = thread.get_id();
  thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ran_on, id);
}

TEST(Reactor, TimersExpireWhileItRuns) {
  Reactor reactor;
  const TimePoint start = reactor.now();
  Timer timer([&] { reactor.stop(); });
  reactor.arm(timer, std::chrono::milliseconds(60));
  reactor.run();
  EXPECT_GE(reactor.now() - start, std::chrono::milliseconds(60));
  EXPECT_GE(reactor.coarse_now(), start);
}

TEST(Reactor, StopFromAnotherThreadEndsAnIdleLoop) {
  ReactorThread thread;
  thread.join();
}

}  // namespace
}  // namespace pointsman
