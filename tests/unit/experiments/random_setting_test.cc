#include "experiments/random_setting.h"

#include <set>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

TEST(RandomSetting, IsAFunctionOfItsSeed) {
  const Registry registry = make_registry();
  const RandomSetting one = draw_setting(5, registry);
  const RandomSetting two = draw_setting(5, registry);
  EXPECT_EQ(one.scenario.arrivals.rate, two.scenario.arrivals.rate);
  EXPECT_EQ(one.capacity_rps, two.capacity_rps);
  EXPECT_NE(one.scenario.arrivals.rate, draw_setting(6, registry).scenario.arrivals.rate);
}

TEST(RandomSetting, StaysWithinItsRanges) {
  const Registry registry = make_registry();
  std::set<std::size_t> replicas;
  std::set<std::uint32_t> balancers;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomSetting setting = draw_setting(seed, registry);
    const Scenario& scenario = setting.scenario;
    replicas.insert(scenario.replicas.size());
    balancers.insert(scenario.balancers.count);
    EXPECT_GE(scenario.arrivals.rate, 0.35 * setting.capacity_rps);
    EXPECT_LE(scenario.arrivals.rate, 0.75 * setting.capacity_rps);
    EXPECT_GE(scenario.workload.expected_turns(), 1 / 0.7 - 0.01);
    EXPECT_LE(scenario.workload.expected_turns(), 5.01);
    EXPECT_LE(scenario.workload.document_share, 0.005);
    std::size_t general = 0;
    for (const ReplicaSpec& replica : scenario.replicas) {
      if (replica.pool == PoolPurpose::kGeneral) ++general;
    }
    EXPECT_GE(2 * general, scenario.replicas.size());
    EXPECT_LT(general, scenario.replicas.size());
  }
  EXPECT_GE(replicas.size(), 3U);
  EXPECT_GE(balancers.size(), 3U);
}

TEST(RandomSetting, TakesReplicasAndSharingFromTheCaller) {
  const Registry registry = make_registry();
  const RandomSetting setting = draw_setting(3, registry, 5, 0.5);
  EXPECT_EQ(setting.scenario.replicas.size(), 5U);
  EXPECT_NEAR(setting.scenario.workload.expected_turns(), 2, 1e-9);
  EXPECT_DOUBLE_EQ(setting.drawn.number("sharing"), 0.5);
  EXPECT_DOUBLE_EQ(setting.drawn.number("replicas"), 5);
}

}  // namespace
}  // namespace pointsman::sim
