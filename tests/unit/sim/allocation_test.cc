#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "sim/cluster.h"
#include "sim/virtual_engine.h"
#include "support/count_allocations.h"
#include "support/registry.h"

namespace pointsman::sim {
namespace {

using testing_support::allocations;

// Two hundred conversations of two turns behind one system prompt, in a cache that holds some.
void play(VirtualEngine& engine, std::uint64_t round) {
  for (std::uint64_t i = 0; i < 400; ++i) {
    const TimePoint now{std::chrono::seconds(300 * round) + std::chrono::milliseconds(500 * i)};
    static_cast<void>(engine.advance(now));
    const std::uint64_t conversation = 1'000 * (round + 1) + i / 2;
    const auto blocks = static_cast<std::uint32_t>(20 + i % 7);
    const ChainRun chain[] = {{.id = 1, .blocks = 10}, {.id = conversation, .blocks = blocks}};
    engine.submit({.id = i,
                   .prompt_tokens = (10 + blocks) * kBlockTokens - 100,
                   .output_tokens = 110,
                   .chain = chain},
                  now);
  }
}

TEST(VirtualEngine, AWarmOneAllocatesNothing) {
  EngineConfig config;
  config.blocks = 400;
  VirtualEngine engine(config);
  for (std::uint64_t round = 0; round < 3; ++round) play(engine, round);
  const std::uint64_t before = allocations.load();
  for (std::uint64_t round = 3; round < 6; ++round) play(engine, round);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_GT(engine.engine().state().prefix_hits, 0U);
}

// Allocations of a run with so many requests.
std::uint64_t allocations_of(const std::string& policy, std::uint32_t requests) {
  Scenario scenario = *find_scenario_preset("set_a");
  scenario.measure.requests = requests;
  Arm arm;
  arm.policy.preset = policy;
  const std::uint64_t before = allocations.load();
  static_cast<void>(run(scenario, arm, testing_support::registry(), 1));
  return allocations.load() - before;
}

TEST(Cluster, ARequestAllocatesNothingOnceTheRunIsWarm) {
  for (const char* const policy : {"round_robin", "least_connections", "least_kv"}) {
    const std::uint64_t ten = allocations_of(policy, 10'000);
    const std::uint64_t thirty = allocations_of(policy, 30'000);
    // A cache that has never held so many pieces is the exception.
    EXPECT_LT(thirty, ten + 20'000 / 20) << policy;
  }
}

}  // namespace
}  // namespace pointsman::sim
