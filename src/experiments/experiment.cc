#include "experiments/experiment.h"

#include <array>

#include "experiments/best.h"
#include "experiments/herding.h"
#include "experiments/policies.h"
#include "experiments/segregation.h"
#include "experiments/table.h"
#include "experiments/theory.h"
#include "experiments/valve.h"

namespace pointsman::sim {

std::span<const Experiment> experiments() {
  static constexpr std::array kAll{
      Experiment{"table", "The published table of five policies, and others beside it", run_table},
      Experiment{"herding", "Many balancers, reports seconds apart: who herds, and what cures it",
                 run_herding},
      Experiment{"valve", "Where to open the release valve of session affinity", run_valve},
      Experiment{"segregation", "Pools for long requests: what is gained and what is paid",
                 run_segregation},
      Experiment{"best", "The default policy against the best row of the table, and what it needs",
                 run_best},
      Experiment{"policies", "All policies over random plausible settings", run_policies},
      Experiment{"theory", "The simulator and the two-choice sampler against closed forms",
                 run_theory},
  };
  return kAll;
}

Scenario scenario_for(const ExperimentOptions& options, std::string_view name,
                      std::optional<std::uint32_t> requests) {
  Scenario scenario = *find_scenario_preset(name);
  if (requests) scenario.measure.requests = *requests;
  if (options.replicas) set_replicas(scenario, static_cast<std::uint32_t>(*options.replicas));
  if (options.sharing) set_sharing(scenario, *options.sharing);
  return scenario;
}

}  // namespace pointsman::sim
