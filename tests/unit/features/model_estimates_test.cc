#include "features/model_estimates.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

std::unique_ptr<ModelEstimates> estimates(double bytes_per_token = 4) {
  return std::make_unique<ModelEstimates>(bytes_per_token);
}

TEST(ModelEstimates, NothingLearntIsTheConfiguredRatioAndNoLength) {
  const auto all = estimates(3.5);
  EXPECT_NEAR(all->bytes_per_token("m"), 3.5, 1e-5);
  EXPECT_EQ(all->expected_output("m", 0), 0U);
  EXPECT_EQ(all->expected_output("m", 100), 0U);
}

TEST(ModelEstimates, TheRatioIsLearntPerModel) {
  const auto all = estimates();
  for (int i = 0; i < 100; ++i) {
    all->learn_prompt("german", 3100, 1000);
    all->learn_prompt("code", 2500, 1000);
  }
  EXPECT_NEAR(all->bytes_per_token("german"), 3.1, 0.05);
  EXPECT_NEAR(all->bytes_per_token("code"), 2.5, 0.05);
  EXPECT_NEAR(all->bytes_per_token("other"), 4, 1e-5);
}

TEST(ModelEstimates, ShortPromptsDoNotDrownLongOnes) {
  const auto all = estimates();
  for (int i = 0; i < 20; ++i) all->learn_prompt("m", 40'000, 10'000);
  // A template's tokens make a short prompt dear.
  for (int i = 0; i < 500; ++i) all->learn_prompt("m", 20, 20);
  EXPECT_NEAR(all->bytes_per_token("m"), 4, 0.5);
}

TEST(ModelEstimates, TheRatioFollowsAChange) {
  const auto all = estimates();
  for (int i = 0; i < 200; ++i) all->learn_prompt("m", 10'000, 2'500);
  for (int i = 0; i < 200; ++i) all->learn_prompt("m", 10'000, 5'000);
  EXPECT_NEAR(all->bytes_per_token("m"), 2, 0.05);
}

TEST(ModelEstimates, TheRatioStaysInItsBounds) {
  const auto all = estimates();
  for (int i = 0; i < 1000; ++i) {
    all->learn_prompt("low", 1, 4'000'000'000U);
    all->learn_prompt("high", 1'000'000'000'000ULL, 1);
    all->learn_prompt("none", 0, 0);
  }
  EXPECT_EQ(all->bytes_per_token("low"), ModelEstimates::kLeastBytesPerToken);
  EXPECT_EQ(all->bytes_per_token("high"), ModelEstimates::kMostBytesPerToken);
  EXPECT_NEAR(all->bytes_per_token("none"), 4, 1e-5);
}

TEST(ModelEstimates, FurtherModelsThanThereIsRoomForShareAPlace) {
  const auto all = estimates();
  for (std::size_t i = 0; i < 3 * ModelEstimates::kModels; ++i) {
    for (int n = 0; n < 50; ++n) {
      all->learn_prompt(std::string("m").append(std::to_string(i)), 10'000, 5'000);
    }
  }
  EXPECT_NEAR(all->bytes_per_token("m0"), 2, 0.1);
  EXPECT_NEAR(all->bytes_per_token("never heard of"), 2, 0.1);
}

TEST(ModelEstimates, EqualAnswersAreExpected) {
  const auto all = estimates();
  for (int i = 0; i < 100; ++i) all->learn_output("m", 300, 0);
  // A bucket is a half power of two wide: [256, 362).
  EXPECT_NEAR(all->expected_output("m", 0), 309, 60);
  EXPECT_EQ(all->expected_output("m", 10), 10U);
  EXPECT_EQ(all->expected_output("m", 1), 1U);
  EXPECT_EQ(all->expected_output("m", 1'000'000), all->expected_output("m", 0));
}

// Exponential lengths of mean 400: E[min(X, L)] = 400 (1 - exp(-L/400)).
double exponential_mean(double limit) {
  return 400 * (1 - std::exp(-limit / 400));
}

TEST(ModelEstimates, TheMeanUnderALimitIsThatOfTheDistribution) {
  const auto all = estimates();
  Rng rng(7);
  for (int i = 0; i < 3000; ++i) {
    const double x = -400 * std::log(1 - rng.unit());
    all->learn_output("m", static_cast<std::uint32_t>(std::ceil(x)), 0);
  }
  for (const std::uint32_t limit : {16U, 64U, 100U, 256U, 1000U, 4000U}) {
    const double mean = exponential_mean(limit);
    EXPECT_NEAR(all->expected_output("m", limit), mean, 0.06 * mean + 1) << limit;
  }
}

TEST(ModelEstimates, AnswersCutByTheirLimitsDoNotMakeTheOthersShort) {
  const auto all = estimates();
  Rng rng(11);
  for (int i = 0; i < 3000; ++i) {
    const auto length = static_cast<std::uint32_t>(std::ceil(-400 * std::log(1 - rng.unit())));
    const std::uint32_t limit = i % 2 == 0 ? 50 : 0;  // half of the clients want little
    all->learn_output("m", limit == 0 ? length : std::min(length, limit), limit);
  }
  EXPECT_NEAR(all->expected_output("m", 0), 400, 60);
}

TEST(ModelEstimates, OldAnswersFade) {
  const auto all = estimates();
  for (int i = 0; i < 20'000; ++i) all->learn_output("m", 4000, 0);
  for (int i = 0; i < 20'000; ++i) all->learn_output("m", 30, 0);
  EXPECT_LT(all->expected_output("m", 0), 200U);
}

TEST(ModelEstimates, ThreadsLearnAtOnce) {
  const auto all = estimates();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&all, t] {
      const std::string own = std::string("m").append(std::to_string(t));
      for (int i = 0; i < 5'000; ++i) {
        all->learn_prompt("shared", 3000, 1000);
        all->learn_output("shared", 100, 0);
        all->learn_output(own, 100, 0);
        static_cast<void>(all->bytes_per_token("shared"));
        static_cast<void>(all->expected_output("shared", 50));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NEAR(all->bytes_per_token("shared"), 3, 0.05);
  EXPECT_NEAR(all->expected_output("shared", 0), 103, 20);
}

}  // namespace
}  // namespace pointsman
