#include "experiments/supermarket.h"

#include <cmath>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

SupermarketRun run(const SupermarketSpec& spec, std::uint64_t seed = 1) {
  const Registry registry = make_registry();
  const Result<SupermarketRun> result = run_supermarket(spec, registry, seed);
  EXPECT_TRUE(result.ok());
  return *result;
}

// The series of Mitzenmacher 2001 for two choices, 1 + load² + load⁶ + load¹⁴ + …, summed by hand.
TEST(SupermarketLimit, IsThePublishedSeries) {
  EXPECT_NEAR(supermarket_time_s(0.50, 2), 1.2656860, 1e-7);
  EXPECT_NEAR(supermarket_time_s(0.70, 2), 1.6144538, 1e-7);
  EXPECT_NEAR(supermarket_time_s(0.80, 2), 1.9473634, 1e-7);
  EXPECT_NEAR(supermarket_time_s(0.90, 2), 2.6140574, 1e-7);
  EXPECT_NEAR(supermarket_time_s(0.95, 2), 3.3830460, 1e-7);
  EXPECT_NEAR(supermarket_time_s(0.99, 2), 5.4319966, 1e-7);
}

TEST(SupermarketLimit, OfOneChoiceIsTheSingleQueues) {
  EXPECT_DOUBLE_EQ(supermarket_time_s(0.75, 1), 4);
  EXPECT_DOUBLE_EQ(supermarket_tail(0.5, 1, 3), 0.125);
}

TEST(SupermarketLimit, TailsFallDoublyExponentially) {
  EXPECT_DOUBLE_EQ(supermarket_tail(0.9, 2, 1), 0.9);
  EXPECT_NEAR(supermarket_tail(0.9, 2, 3), std::pow(0.9, 7), 1e-15);
  EXPECT_NEAR(supermarket_tail(0.9, 3, 2), std::pow(0.9, 4), 1e-15);
}

// The standard deviation of these runs is 1.2 %, 0.9 % and 0.8 % of the mean.
TEST(Supermarket, FindsTheLimitFromEmptyQueues) {
  for (const std::uint32_t choices : {1U, 2U, 3U}) {
    const SupermarketSpec spec{.queues = 4'000,
                               .load = 0.7,
                               .choices = choices,
                               .warm_up_s = 100,
                               .length_s = 40,
                               .from_limit = false};
    const double limit = supermarket_time_s(spec.load, choices);
    EXPECT_NEAR(run(spec).time_in_system_s / limit, 1, 0.04) << choices;
  }
}

TEST(Supermarket, StaysAtTheLimitAtHighLoad) {
  const SupermarketSpec spec{
      .queues = 4'000, .load = 0.95, .choices = 2, .warm_up_s = 10, .length_s = 40};
  EXPECT_NEAR(run(spec).time_in_system_s / supermarket_time_s(0.95, 2), 1, 0.04);
}

// Little 1961: customers in the system = rate of arrivals times their time in it.
TEST(Supermarket, ObeysLittlesLaw) {
  const SupermarketSpec spec{
      .queues = 500, .load = 0.8, .choices = 2, .warm_up_s = 50, .length_s = 500};
  const SupermarketRun result = run(spec);
  const double rate = static_cast<double>(result.customers) / (spec.length_s * spec.queues);
  EXPECT_NEAR(rate, 0.8, 0.01);
  EXPECT_NEAR(result.mean_in_system / (rate * result.time_in_system_s), 1, 0.005);
}

TEST(Supermarket, SameSeedSameResult) {
  const SupermarketSpec spec{.queues = 50, .load = 0.9, .warm_up_s = 10, .length_s = 100};
  EXPECT_EQ(run(spec, 7).time_in_system_s, run(spec, 7).time_in_system_s);
  EXPECT_NE(run(spec, 7).time_in_system_s, run(spec, 8).time_in_system_s);
}

TEST(Supermarket, SaysWhichPolicyIsMissing) {
  const Result<SupermarketRun> result = run_supermarket({}, Registry{}, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("least_connections"), std::string::npos);
}

}  // namespace
}  // namespace pointsman::sim
