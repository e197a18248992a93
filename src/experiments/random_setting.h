#pragma once

#include <cstdint>
#include <optional>

#include "core/registry.h"
#include "experiments/record.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// A plausible fleet with a plausible load, drawn by chance: what a policy must be good at is not
// one setting but whatever people run.
struct RandomSetting {
  Scenario scenario;
  // Completions per second under `round_robin` in a closed loop of 64 users per replica without
  // thinking: what the fleet can do at best where no cache helps beyond chance.
  double capacity_rps = 0;
  Record drawn;  // what was drawn, by name
};

// Setting number `seed`; a pure function of its arguments. The ranges lie around the reference
// scenarios `ref70` and `set_a` (docs/experiments/policies.md lists them). The load is a share of
// the capacity, so that no setting is idle or hopeless for all. `replicas` and `sharing` replace
// what would be drawn.
[[nodiscard]] RandomSetting draw_setting(std::uint64_t seed, const Registry& registry,
                                         std::optional<int> replicas = {},
                                         std::optional<double> sharing = {});

}  // namespace pointsman::sim
