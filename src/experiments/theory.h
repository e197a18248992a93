#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// The simulator and the two-choice sampler against closed forms: the supermarket model and balls
// into bins. Rows of model "supermarket" compare the mean time in the system with the limit for
// infinitely many queues; of model "finite" with the same limit at few queues, where it need not
// hold; of model "bins" the fullest of n bins. `sharing` means nothing here.
[[nodiscard]] Result<Report> run_theory(const ExperimentOptions& options, const Registry& registry);

}  // namespace pointsman::sim
