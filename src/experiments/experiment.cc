#include "experiments/experiment.h"

namespace pointsman::sim {

std::span<const Experiment> experiments() {
  return {};
}

}  // namespace pointsman::sim
