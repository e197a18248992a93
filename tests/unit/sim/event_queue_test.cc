#include "sim/event_queue.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

enum class Kind : std::uint8_t { kA, kB = 255 };

TEST(EventQueue, TakesInTheOrderOfTimesAndOfEqualOnesTheFirstPutIn) {
  Rng rng(1);
  EventQueue<Kind> queue;
  struct Expected {
    TimePoint at;
    std::uint32_t subject;
  };
  std::vector<Expected> waiting;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    if (waiting.empty() || rng.below(100) < 55) {
      const TimePoint at{Duration(rng.below(50))};
      queue.put(at, i % 2 == 0 ? Kind::kA : Kind::kB, i, i * 3);
      waiting.push_back({at, i});
      continue;
    }
    const auto first =
        std::min_element(waiting.begin(), waiting.end(),
                         [](const Expected& a, const Expected& b) { return a.at < b.at; });
    ASSERT_EQ(queue.next_time(), first->at);
    const auto event = queue.take();
    ASSERT_EQ(event.at, first->at);
    ASSERT_EQ(event.subject, first->subject);
    ASSERT_EQ(event.kind, event.subject % 2 == 0 ? Kind::kA : Kind::kB);
    ASSERT_EQ(event.version, event.subject * 3);
    waiting.erase(first);
    ASSERT_EQ(queue.size(), waiting.size());
  }
}

}  // namespace
}  // namespace pointsman::sim
