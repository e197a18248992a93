#pragma once

#include <vector>

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Every preset, as it ships and in the arms that other experiments speak of.
[[nodiscard]] std::vector<Arm> policy_arms(const Registry& registry);

// All of them over random settings: `seeds` is the number of settings, each with a few runs. Rows
// of model "policy" hold each arm against the strongest row of the published table, "pair" each arm
// against each other, and "setting" what every setting was and what every arm did in it.
[[nodiscard]] Result<Report> run_policies(const ExperimentOptions& options,
                                          const Registry& registry);

}  // namespace pointsman::sim
