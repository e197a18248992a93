#include "experiments/balls_into_bins.h"

#include <cmath>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

TEST(BinsLimit, OfOneChoiceIsPoissons) {
  const std::vector<double> shares = bins_limit(1, 4);
  EXPECT_NEAR(shares[1], 1 - std::exp(-1), 1e-9);
  EXPECT_NEAR(shares[2], 1 - 2 * std::exp(-1), 1e-9);
  EXPECT_NEAR(shares[3], 1 - 2.5 * std::exp(-1), 1e-9);
}

// From the third place on, the same equations solved in Python by the midpoint rule in 200,000
// steps.
TEST(BinsLimit, OfTwoChoicesSolvesItsEquations) {
  const std::vector<double> shares = bins_limit(2, 4);
  EXPECT_NEAR(shares[1], std::tanh(1), 1e-9);
  EXPECT_NEAR(shares[2], 0.2295045385, 1e-9);
  EXPECT_NEAR(shares[3], 0.0088952583, 1e-9);
  EXPECT_NEAR(shares[4], 6.0472558e-6, 1e-9);
}

TEST(ThrowBalls, CountsEveryBall) {
  const Registry registry = make_registry();
  const auto at_least = throw_balls(100, 2, registry, 1);
  ASSERT_TRUE(at_least.ok());
  EXPECT_EQ(at_least->front(), 100U);
  std::uint32_t balls = 0;
  for (std::size_t i = 1; i < at_least->size(); ++i) balls += (*at_least)[i];
  EXPECT_EQ(balls, 100U);
}

TEST(ThrowBalls, FillsTheSharesOfTheLimit) {
  const Registry registry = make_registry();
  for (const std::uint32_t choices : {1U, 2U}) {
    const auto at_least = throw_balls(8'192, choices, registry, 1);
    ASSERT_TRUE(at_least.ok());
    const std::vector<double> limit = bins_limit(choices, 3);
    for (std::size_t i = 1; i <= 3; ++i) {
      const double share = (*at_least)[i] / 8'192.0;
      // Five standard deviations of independent bins, which is more than these have.
      EXPECT_NEAR(share, limit[i], 5 * std::sqrt(limit[i] * (1 - limit[i]) / 8'192)) << i;
    }
  }
}

}  // namespace
}  // namespace pointsman::sim
