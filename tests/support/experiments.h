#pragma once

#include <stdexcept>
#include <utility>

#include "experiments/experiment.h"
#include "support/registry.h"

namespace pointsman::testing_support {

// The quick version on two threads; 0 seeds: as many as that has.
inline sim::ExperimentOptions quick_options(int seeds = 0) {
  sim::ExperimentOptions options;
  options.quick = true;
  options.seeds = seeds;
  options.jobs = 2;
  return options;
}

// The report of an experiment over the policies that ship.
template <typename Run>
sim::Report report_of(const Run& run, const sim::ExperimentOptions& options) {
  Result<sim::Report> report = run(options, registry());
  if (!report) throw std::runtime_error(report.error().message);
  return std::move(*report);
}

}  // namespace pointsman::testing_support
