// What engines say of their caches, against a naive account of the same.

#include <cstdint>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/engine_caches_model.h"

namespace pointsman {
namespace {

class EngineCachesProperty : public testing::TestWithParam<std::uint64_t> {
 protected:
  auto trial(std::size_t max_bytes, std::size_t fan_out, std::size_t depth) {
    return test::EngineCachesTrial(
        EngineCaches::Options{.max_bytes = max_bytes, .seed = GetParam()}, fan_out, depth,
        [rng = Rng(GetParam())](std::uint64_t bound) mutable { return rng.below(bound); });
  }
};

// Few blocks: every store meets what is held already, holes open and close.
TEST_P(EngineCachesProperty, SmallTreesHaveTheAnswersOfTheNaiveAccount) {
  auto small = trial(std::size_t{16} << 20, 3, 6);
  for (int i = 0; i < 3'000; ++i) ASSERT_TRUE(small.step()) << "step " << i;
  EXPECT_TRUE(small.caches.consistent());
  EXPECT_EQ(small.refused, 0U);
}

TEST_P(EngineCachesProperty, LongChainsHaveTheAnswersOfTheNaiveAccount) {
  auto large = trial(std::size_t{16} << 20, 4, 60);
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(large.step()) << "step " << i;
  EXPECT_TRUE(large.caches.consistent());
}

TEST_P(EngineCachesProperty, AtTheLimitTheOneThatAsksForMoreLosesItsBlocksAndNobodyElse) {
  auto full = trial(std::size_t{160} << 10, 1'000, 300);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(full.step()) << "step " << i;
  EXPECT_TRUE(full.caches.consistent());
  EXPECT_GT(full.refused, 0U);
  EXPECT_GT(full.caches.overflows(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineCachesProperty, testing::Range<std::uint64_t>(1, 5));

}  // namespace
}  // namespace pointsman
