#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Equal replicas, as a scenario file lists them.
struct ReplicaGroup {
  std::uint32_t count = 1;
  ReplicaSpec replica;
};

// Every key of a scenario file, declared once: reading, range and unknown-key errors,
// docs/scenario.md and the "scenario" of the JSON files come from these tables. The value comes as
// a file would give it. Keys that end in _s are seconds.
[[nodiscard]] const std::vector<Key<Scenario>>& scenario_keys();  // but replicas, faults, arms
[[nodiscard]] const std::vector<Key<ReplicaGroup>>& replica_group_keys();
[[nodiscard]] const std::vector<Key<FaultSpec>>& fault_keys();
[[nodiscard]] const std::vector<Key<Arm>>& arm_keys();  // but the policy

// docs/scenario.md: every key with type, default, allowed values and help.
[[nodiscard]] std::string scenario_markdown();

}  // namespace pointsman::sim
