#include "telemetry/log_queue.h"

#include <future>
#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(LogQueue, DropsAndCountsWhatASlowWriterCannotTake) {
  std::promise<void> started;
  std::promise<void> go_on;
  std::string written;
  bool first = true;
  LogQueue queue([&](std::string_view bytes) {
    if (first) {
      started.set_value();
      go_on.get_future().wait();
      first = false;
    }
    written += bytes.substr(0, 1);
  });
  queue.hand_over("a", 1);
  started.get_future().wait();

  // One byte is with the writer; so much more may wait.
  constexpr std::size_t kHalf = LogQueue::kMaxWaiting / 2;
  queue.hand_over(std::string(kHalf, 'b'), 10);
  EXPECT_EQ(queue.dropped_entries(), 0U);
  EXPECT_EQ(queue.hand_over(std::string(kHalf, 'c'), 20), "") << "an empty buffer all the same";
  EXPECT_EQ(queue.dropped_entries(), 20U);
  queue.hand_over(std::string(kHalf - 1, 'd'), 30);
  EXPECT_EQ(queue.dropped_entries(), 20U);
  go_on.set_value();
  queue.close();
  EXPECT_EQ(written, "abd");
}

TEST(LogBuffer, IsHandedOverWhenItIsFullOrFlushed) {
  std::string written;
  LogQueue queue([&written](std::string_view bytes) { written += bytes; });
  std::string expected;
  {
    LogBuffer buffer(queue);
    for (int i = 0; i < 10'000; ++i) {
      const std::string entry = std::to_string(i) + '\n';
      buffer.bytes() += entry;
      buffer.entry_ended();
      expected += entry;
    }
  }
  queue.close();
  EXPECT_EQ(written, expected);
}

}  // namespace
}  // namespace pointsman
