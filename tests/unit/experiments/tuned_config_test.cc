#include "experiments/tuned_config.h"

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

Scenario fleet(std::size_t replicas) {
  Scenario scenario;
  scenario.replicas.resize(replicas);
  return scenario;
}

TEST(TunedConfig, WhatIsShippedNeedsNoKeys) {
  TunedConfig config;
  config.policy.preset = "least_work";
  EXPECT_EQ(tuned_config_yaml(config, fleet(2), "why"),
            "# why\n"
            "policy: least_work\n"
            "replicas:\n"
            "  - http://replica-1:8000\n"
            "  - http://replica-2:8000\n");
}

TEST(TunedConfig, OptionsLimitsAndWeightsAreWrittenAsTheConfigurationHasThem) {
  TunedConfig config;
  config.policy.preset = "least_work";
  config.policy.options = {{"private_weight", 5.0}, {"decode_tokens", 16.0}};
  config.saturation = {.kv = 0.8, .queue = 16, .prefill_tokens = 8'192};
  Scenario scenario = fleet(1);
  scenario.replicas[0].weight = 2.5;
  EXPECT_EQ(tuned_config_yaml(config, scenario, "why"),
            "# why\n"
            "policy: {preset: least_work, private_weight: 5, decode_tokens: 16}\n"
            "saturation: {kv: 0.8, prefill_tokens: 8192}\n"
            "replicas:\n"
            "  - {url: \"http://replica-1:8000\", weight: 2.5}\n");
}

TEST(TunedConfig, PoolsAreTakenFromTheEndAndSoIsTheScenario) {
  TunedConfig config;
  config.policy.preset = "session_affinity";
  config.pools = {.long_context = 1, .long_generation = 1};
  Scenario scenario = fleet(4);
  scenario.balancers.segregation.long_context_tokens = 16'000;
  EXPECT_EQ(tuned_config_yaml(config, scenario, "why"),
            "# why\n"
            "policy: session_affinity\n"
            "segregation: {long_context_tokens: 16000}\n"
            "pools:\n"
            "  - name: general\n"
            "    replicas:\n"
            "      - http://replica-1:8000\n"
            "      - http://replica-2:8000\n"
            "  - name: long-context\n"
            "    purpose: long_context\n"
            "    replicas:\n"
            "      - http://replica-3:8000\n"
            "  - name: long-generation\n"
            "    purpose: long_generation\n"
            "    replicas:\n"
            "      - http://replica-4:8000\n");
  EXPECT_EQ(pools_text(config.pools, 4), "2/1/1");

  const Scenario cut = with_pools(scenario, config.pools);
  EXPECT_TRUE(cut.segregated);
  EXPECT_EQ(cut.replicas[1].pool, PoolPurpose::kGeneral);
  EXPECT_EQ(cut.replicas[2].pool, PoolPurpose::kLongContext);
  EXPECT_EQ(cut.replicas[3].pool, PoolPurpose::kLongGeneration);
  EXPECT_FALSE(with_pools(cut, {}).segregated);
}

}  // namespace
}  // namespace pointsman::sim
