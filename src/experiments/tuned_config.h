#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/context.h"
#include "core/registry.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Replicas set aside, counted from the end of the scenario's list; none: no pools.
struct PoolSizes {
  std::uint32_t long_context = 0;
  std::uint32_t long_generation = 0;

  [[nodiscard]] std::uint32_t total() const { return long_context + long_generation; }
};

// What `simulate tune` may change of a router's configuration.
struct TunedConfig {
  PolicySpec policy;  // a preset with options
  SaturationLimits saturation;
  PoolSizes pools;
};

// "6/1/1": replicas for ordinary requests, long context, long generation.
[[nodiscard]] std::string pools_text(const PoolSizes& pools, std::size_t replicas);

// The scenario with its replicas in those pools.
[[nodiscard]] Scenario with_pools(const Scenario& scenario, const PoolSizes& pools);

// The rest, as a simulated router takes it.
[[nodiscard]] Arm arm_of(const TunedConfig& config);

// The configuration file that says the same to `pointsman serve`: keys that differ from their
// defaults, and replicas with placeholders for their URLs. `comment` is its first line.
[[nodiscard]] std::string tuned_config_yaml(const TunedConfig& config, const Scenario& scenario,
                                            std::string_view comment);

}  // namespace pointsman::sim
