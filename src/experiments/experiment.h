#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "core/registry.h"
#include "experiments/report.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// What every experiment can be told.
struct ExperimentOptions {
  int seeds = 0;                    // runs of each row; 0: as many as the experiment's page used
  std::uint64_t first_seed = 1;     // seeds first_seed, first_seed + 1, …
  int jobs = 0;                     // threads; 0: one for each core
  bool quick = false;               // a small version, for a look and for CI
  std::optional<int> replicas{};    // replicas, or queues
  std::optional<double> sharing{};  // share of requests that are follow-up turns, [0, 1)
  // Called with (runs ended, runs in all) by one thread at a time; may be empty.
  std::function<void(std::size_t, std::size_t)> progress{};
};

// A named experiment: `pointsman simulate <name>`, docs/experiments/<name>.md. It runs the policies
// that `registry` holds. The same options give the same report for any number of jobs.
struct Experiment {
  std::string_view name;
  std::string_view summary;
  Result<Report> (*run)(const ExperimentOptions& options, const Registry& registry);
};

// All experiments, in the order in which help lists them.
[[nodiscard]] std::span<const Experiment> experiments();

// `options.seeds`, or one of the two where it is 0.
[[nodiscard]] inline int seeds_or(const ExperimentOptions& options, int full, int quick) {
  if (options.seeds > 0) return options.seeds;
  return options.quick ? quick : full;
}

// The named scenario with the replicas and the sharing that the options ask for. `requests` are
// those of a run of the named fleet; a larger one gets more.
[[nodiscard]] Scenario scenario_for(const ExperimentOptions& options, std::string_view name,
                                    std::optional<std::uint32_t> requests = {});

}  // namespace pointsman::sim
