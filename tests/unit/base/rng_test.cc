#include "base/rng.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(Rng, SameSeedGivesSameSequence) {
  Rng a(7);
  Rng b(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a(), b());
}

TEST(Rng, BelowStaysBelowItsBoundAndReachesEveryValue) {
  Rng rng(1);
  int seen[5] = {};
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t v = rng.below(5);
    ASSERT_LT(v, 5U);
    ++seen[v];
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(Rng, UnitHasTheMeanAndVarianceOfAUniformVariable) {
  Rng rng(2);
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.unit();
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3.0, 0.005);
}

}  // namespace
}  // namespace pointsman
