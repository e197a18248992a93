#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// The published table of five policies on eight replicas, from the scenario `ref70`: the same rows
// and further policies beside the published cells.
//
// Rows of model "policy" are the table: each measure, "published_<key>" where there is such a cell,
// and "<key>_deviation" from it. Rows of model "check" say what the table promises and whether it
// holds; rows of model "sharing" are some of the policies over the share of follow-up turns.
[[nodiscard]] Result<Report> run_table(const ExperimentOptions& options, const Registry& registry);

}  // namespace pointsman::sim
