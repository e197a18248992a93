#include "experiments/experiment.h"

#include <array>

#include "experiments/policies.h"
#include "experiments/theory.h"

namespace pointsman::sim {

std::span<const Experiment> experiments() {
  static constexpr std::array kAll{
      Experiment{"policies", "All policies over random plausible settings", run_policies},
      Experiment{"theory", "The simulator and the two-choice sampler against closed forms",
                 run_theory},
  };
  return kAll;
}

}  // namespace pointsman::sim
