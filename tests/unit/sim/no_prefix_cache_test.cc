// Replicas whose engines find nothing of what they computed before, behind routers that are not
// told.

#include <cstdint>

#include <gtest/gtest.h>

#include "sim/cluster.h"
#include "support/registry.h"

namespace pointsman::sim {
namespace {

using testing_support::registry;

// One router before four replicas at a moderate load, `without` of them without a prefix cache.
Scenario scenario_with(std::size_t without) {
  Scenario scenario = *find_scenario_preset("set_a");
  scenario.replicas.resize(4);
  scenario.arrivals.rate = 5;
  scenario.balancers.count = 1;
  scenario.workload.system_prompts = 5;
  scenario.measure.requests = 4'000;
  for (std::size_t i = 0; i < without; ++i) scenario.replicas[i].engine.prefix_caching = false;
  return scenario;
}

double mean_ttft(const Scenario& scenario, RunResult* last = nullptr) {
  Arm arm;
  arm.policy.preset = "least_work";
  double sum = 0;
  constexpr int kSeeds = 4;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunResult result = run(scenario, arm, registry(), seed);
    EXPECT_EQ(result.failed, 0);
    sum += result.ttft_mean_s / kSeeds;
    if (last != nullptr) *last = result;
  }
  return sum;
}

// No block is whole: nothing is ever known of any prefix.
Scenario without_index(Scenario scenario) {
  scenario.balancers.block_tokens = 65'536;
  return scenario;
}

TEST(NoPrefixCache, TheRouterStopsBelievingAndIsNoWorseThanWithoutIndex) {
  const Scenario scenario = scenario_with(4);
  RunResult result;
  const double with_index = mean_ttft(scenario, &result);
  const double plain = mean_ttft(without_index(scenario));
  EXPECT_EQ(result.prefix_hit_rate, 0);
  EXPECT_LT(result.predicted_hit_rate, 0.01);
  EXPECT_LT(with_index, 1.03 * plain);
}

TEST(NoPrefixCache, OneReplicaWithoutLeavesTheOthersAdvantage) {
  const Scenario scenario = scenario_with(1);
  RunResult result;
  const double with_index = mean_ttft(scenario, &result);
  const double plain = mean_ttft(without_index(scenario));
  EXPECT_LT(with_index, plain);
  // Answers are found as well, which no router foresees.
  EXPECT_LT(result.predicted_hit_rate, result.prefix_hit_rate + 0.01);
}

}  // namespace
}  // namespace pointsman::sim
