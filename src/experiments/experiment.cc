#include "experiments/experiment.h"

#include <array>

#include "experiments/theory.h"

namespace pointsman::sim {

std::span<const Experiment> experiments() {
  static constexpr std::array kAll{
      Experiment{"theory", "The simulator and the two-choice sampler against closed forms",
                 run_theory},
  };
  return kAll;
}

}  // namespace pointsman::sim
