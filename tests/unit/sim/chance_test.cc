#include "sim/chance.h"

#include <bit>
#include <cmath>

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

struct Moments {
  double mean = 0;
  double cv = 0;
};

template <typename Draw>
Moments moments(Draw&& draw, int count = 400'000) {
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < count; ++i) {
    const double value = draw();
    sum += value;
    squares += value * value;
  }
  const double mean = sum / count;
  return {mean, std::sqrt(squares / count - mean * mean) / std::abs(mean)};
}

TEST(Chance, GammaHasTheMeanAndTheVariationThatWereAskedFor) {
  for (const double cv : {0.3, 0.9, 1.0, 1.5, 3.0}) {
    Rng rng(7);
    const Moments got = moments([&] { return draw_gamma(rng, 2.5, cv); });
    // Five standard errors of the mean; those of the variation are larger with heavier tails.
    EXPECT_NEAR(got.mean, 2.5, 2.5 * cv * 5 / std::sqrt(400'000)) << cv;
    EXPECT_NEAR(got.cv, cv, 0.02 * cv * (1 + cv)) << cv;
  }
  Rng rng(7);
  EXPECT_EQ(draw_gamma(rng, 2.5, 0), 2.5);
}

TEST(Chance, NormalIsStandard) {
  Rng rng(3);
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  constexpr int kCount = 400'000;
  for (int i = 0; i < kCount; ++i) {
    const double z = draw_normal(rng);
    sum += z;
    squares += z * z;
    if (std::abs(z) > 2) ++beyond_two;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.008);
  EXPECT_NEAR(squares / kCount, 1, 0.012);
  EXPECT_NEAR(beyond_two / double{kCount}, 0.0455, 0.002);
}

TEST(Chance, MixedValuesAreDistinct) {
  EXPECT_NE(mixed(0), 0U);
  EXPECT_NE(mixed(1), mixed(2));
  EXPECT_GT(std::popcount(mixed(1) ^ mixed(2)), 16) << "neighbours differ in many bits";
}

}  // namespace
}  // namespace pointsman::sim
