#pragma once

#include "base/result.h"
#include "core/registry.h"
#include "experiments/experiment.h"

namespace pointsman::sim {

// The default policy, `least_work`, against the best row of the published table, `session_affinity`
// with segregation: what it gains with all that routers can know of each other, and how much of
// that is left without. `seeds` is the number of random settings; named scenarios have a third as
// many runs, and a sixth with something changed.
//
// Rows of model "named" hold the arms on `set_a` and `ref70` with one and four balancers, "random"
// the same arms over random settings, "option" the default with one of its constants changed, over
// the same settings, "change" what happens to the named scenarios under bursts, slow or lost
// replicas, a hot prefix and small caches, and "setting" what each random setting was.
[[nodiscard]] Result<Report> run_best(const ExperimentOptions& options, const Registry& registry);

}  // namespace pointsman::sim
