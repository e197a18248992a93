#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// When balancers herd: everyone's least loaded replica is the same one until the next report.
// `global_least_kv` (the best of all) against `least_kv` (of two drawn by chance) with 1 to 16
// balancers, reports 1 to 5 s apart, in step and out of step; each by the bare report, with the
// balancer's own sends since then added, and with the shipped limits of saturation as well. Then
// `least_work` with and without exchange of charges.
//
// Rows of model "herding" hold one arm each; rows of model "series" the requests at each replica
// over half a minute of one run.
[[nodiscard]] Result<Report> run_herding(const ExperimentOptions& options,
                                         const Registry& registry);

}  // namespace pointsman::sim
