#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// Where to open the release valve of session affinity: at 0.5 to 1.0 of the home's KV cache, or
// never, in a fleet whose caches are slack, in one between, and in one that its caches bind. Hit
// rate and p99, each limit beside "never" seed by seed.
[[nodiscard]] Result<Report> run_valve(const ExperimentOptions& options, const Registry& registry);

}  // namespace pointsman::sim
