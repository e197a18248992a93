#include "experiments/statistics.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

// Abramowitz and Stegun, table 26.10, the column of P(|T| <= t) = 0.95, and 0.99.
TEST(StudentT, MatchesThePublishedTable) {
  const std::vector<std::pair<int, double>> at_95{
      {1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},  {6, 2.447},
      {7, 2.365},  {8, 2.306},  {9, 2.262},  {10, 2.228}, {15, 2.131}, {19, 2.093},
      {20, 2.086}, {25, 2.060}, {30, 2.042}, {40, 2.021}, {60, 2.000}, {120, 1.980}};
  for (const auto& [degrees, value] : at_95) {
    EXPECT_NEAR(student_t(degrees), value, 0.0005) << degrees;
  }
  EXPECT_NEAR(student_t(1, 0.99), 63.657, 0.0005);
  EXPECT_NEAR(student_t(10, 0.99), 3.169, 0.0005);
  EXPECT_NEAR(student_t(29, 0.99), 2.756, 0.0005);
}

TEST(StudentT, TendsToTheNormalLaw) {
  EXPECT_NEAR(student_t(100'000), 1.959964, 5e-5);
  EXPECT_NEAR(student_t(3, 0.5), 0.764892, 1e-6);  // R: qt(0.75, 3)
}

TEST(ArithmeticMean, HasStudentsInterval) {
  // Mean 3, standard deviation sqrt(2.5), t(4) = 2.776.
  const Estimate estimate = arithmetic_mean(std::vector<double>{1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(estimate.mean, 3);
  EXPECT_NEAR(estimate.high - estimate.mean, 2.776445 * std::sqrt(2.5 / 5), 1e-6);
  EXPECT_NEAR(estimate.mean - estimate.low, 2.776445 * std::sqrt(2.5 / 5), 1e-6);
}

TEST(ArithmeticMean, OfSharesEndsWhereSharesDo) {
  const Estimate cut = within(arithmetic_mean(std::vector<double>{0.9, 0.999}), 0, 1);
  EXPECT_DOUBLE_EQ(cut.mean, 0.9495);
  EXPECT_GT(cut.low, 0) << "0.9495 - 12.7 * 0.0495";
  EXPECT_DOUBLE_EQ(cut.high, 1);
  EXPECT_DOUBLE_EQ(within(arithmetic_mean(std::vector<double>{0, 0.5}), 0, 1).low, 0);
  EXPECT_TRUE(std::isnan(within(arithmetic_mean(std::vector<double>{0.5}), 0, 1).low));
}

TEST(ArithmeticMean, OneValueTellsNothingOfItsSpread) {
  const std::vector<double> one{7};
  for (const Estimate& estimate :
       {arithmetic_mean(one), geometric_mean(one), paired_ratio(one, std::vector<double>{1}),
        median_estimate(one)}) {
    EXPECT_DOUBLE_EQ(estimate.mean, 7);
    EXPECT_TRUE(std::isnan(estimate.low));
    EXPECT_TRUE(std::isnan(estimate.high));
  }
  EXPECT_EQ(arithmetic_mean({}), Estimate{});
}

TEST(Means, OfWhatIsSetAreTheValueItself) {
  for (const double value : {0.05, 0.2, 0.3, 1.5, 7.15}) {
    for (const std::size_t runs : {2, 3, 20, 60}) {
      const std::vector<double> values(runs, value);
      const Estimate itself{value, value, value};
      EXPECT_EQ(arithmetic_mean(values), itself) << runs;
      EXPECT_EQ(geometric_mean(values), itself) << runs;
    }
  }
}

TEST(GeometricMean, IsTheMeanOfLogarithms) {
  const Estimate estimate = geometric_mean(std::vector<double>{1, 10, 100});
  EXPECT_NEAR(estimate.mean, 10, 1e-12);
  // Logarithms to base 10: mean 1, deviation 1, t(2) = 4.302653.
  EXPECT_NEAR(estimate.high, std::pow(10, 1 + 4.302653 / std::sqrt(3)), 1e-2);
  EXPECT_NEAR(estimate.low, std::pow(10, 1 - 4.302653 / std::sqrt(3)), 1e-6);
}

TEST(GeometricMean, FallsBackWhereThereIsAZero) {
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{0, 2}).mean, 1);
}

TEST(PairedRatio, LeavesOutWhatBothSeedsShare) {
  // The values differ by factors of ten from pair to pair, their ratio is always two.
  const Estimate ratio =
      paired_ratio(std::vector<double>{2, 20, 200}, std::vector<double>{1, 10, 100});
  EXPECT_NEAR(ratio.mean, 2, 1e-12);
  EXPECT_NEAR(ratio.low, 2, 1e-12);
  EXPECT_NEAR(ratio.high, 2, 1e-12);
}

TEST(PairedRatio, LeavesOutPairsWithoutARatio) {
  EXPECT_NEAR(paired_ratio(std::vector<double>{2, 5}, std::vector<double>{1, 0}).mean, 2, 1e-12);
}

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median({}), 0);
}

TEST(MedianEstimate, TakesTheOrderStatisticsOfTheTables) {
  // Ranks of the 95 % interval for the median: 6: 1 and 6; 10: 2 and 9; 20: 6 and 15; 100: 40 and
  // 61 (e.g. Conover, "Practical Nonparametric Statistics", from the binomial table).
  for (const auto& [count, low, high] : {std::tuple{6, 1, 6}, std::tuple{10, 2, 9},
                                         std::tuple{20, 6, 15}, std::tuple{100, 40, 61}}) {
    std::vector<double> values;
    for (int i = count; i >= 1; --i) values.push_back(i);
    const Estimate estimate = median_estimate(values);
    EXPECT_DOUBLE_EQ(estimate.low, low) << count;
    EXPECT_DOUBLE_EQ(estimate.high, high) << count;
  }
}

TEST(MedianRatio, TurnsOverWithItsRatios) {
  const Estimate ratio = median_ratio(std::vector<double>{2, 0.5, 8, 4});
  EXPECT_NEAR(ratio.mean, std::sqrt(8), 1e-12);
  const Estimate turned = median_ratio(std::vector<double>{0.5, 2, 0.125, 0.25});
  EXPECT_NEAR(turned.mean, 1 / std::sqrt(8), 1e-12);
  EXPECT_NEAR(turned.high, 1 / ratio.low, 1e-12);
}

TEST(ShareEstimate, IsWilsonsInterval) {
  const Estimate none = share_estimate(0, 10);
  EXPECT_DOUBLE_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 0.2775, 1e-4);  // Newcombe 1998: 0/10 gives 0 to 0.2775
  const Estimate some = share_estimate(81, 263);
  EXPECT_NEAR(some.low, 0.2553, 1e-4);  // Newcombe 1998, table I, method 3
  EXPECT_NEAR(some.high, 0.3662, 1e-4);
  EXPECT_EQ(share_estimate(0, 0), (Estimate{0, 0, 1}));
}

}  // namespace
}  // namespace pointsman::sim
