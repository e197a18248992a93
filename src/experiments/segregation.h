#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// Pools for long requests, from the scenario `ref70`: what short requests gain and what long ones
// pay. Rows of model "share" go over the share of conversations that begin with a document; of
// model "pools" over the sizes of the pools; of model "rate" over the load; of model "limits" over
// what clients state as their limit of the answer. `sharing` sets the share of follow-up turns.
[[nodiscard]] Result<Report> run_segregation(const ExperimentOptions& options,
                                             const Registry& registry);

}  // namespace pointsman::sim
