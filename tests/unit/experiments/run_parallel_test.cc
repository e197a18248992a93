#include "experiments/run_parallel.h"

#include <atomic>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "base/result.h"

namespace pointsman::sim {
namespace {

TEST(RunParallel, ResultsComeInOrderForEveryNumberOfJobs) {
  for (const int jobs : {1, 2, 3, 8}) {
    std::vector<std::size_t> ended;
    const auto values = run_parallel(
        100, jobs, [](std::size_t i) { return std::to_string(i * i); },
        [&ended](std::size_t done) { ended.push_back(done); });
    ASSERT_EQ(values.size(), 100U);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], std::to_string(i * i));
    ASSERT_EQ(ended.size(), 100U);
    for (std::size_t i = 0; i < ended.size(); ++i) EXPECT_EQ(ended[i], i + 1);
  }
}

TEST(RunParallel, NothingToDo) {
  EXPECT_TRUE(run_parallel(0, 4, [](std::size_t i) { return i; }).empty());
}

TEST(RunParallel, ThrowsWhatTheFirstTaskThrew) {
  for (const int jobs : {1, 2, 8}) {
    std::atomic<int> begun = 0;
    try {
      for_each_parallel(1'000, jobs, [&begun](std::size_t i) {
        ++begun;
        if (i >= 5) throw std::runtime_error(std::to_string(i));
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
    }
    EXPECT_LT(begun, 100);
  }
}

TEST(RunParallel, CarriesErrorsInTheirPlaces) {
  const auto results = run_parallel(4, 2, [](std::size_t i) -> Result<int> {
    if (i % 2 == 1) return Error{ErrorKind::kClient, "odd"};
    return static_cast<int>(i);
  });
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].error().message, "odd");
  EXPECT_EQ(*results[2], 2);
}

}  // namespace
}  // namespace pointsman::sim
