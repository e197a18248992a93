#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "core/registry.h"
#include "experiments/report.h"
#include "sim/scenario.h"

namespace pointsman::sim {

struct TuneOptions {
  std::string measure = "ttft_p99_s";  // what is to become less: a time's key of run_result.h
  int search_seeds = 6;
  int final_seeds = 20;
  std::uint64_t first_seed = 1;  // of the search; those of the final runs are others
  int jobs = 1;                  // 0: one for each core
  bool quick = false;            // fewer candidates
  // Called with (runs ended, runs in all at most) by one thread at a time; may be empty.
  std::function<void(std::size_t, std::size_t)> progress{};
};

struct Tuning {
  Report report;
  std::string config;  // a configuration file of `pointsman serve`, with placeholders for the URLs
};

// Searches the configuration under which the scenario's requests have the least of a measure: the
// policy, its options, the limits of saturation and the sizes of pools. Everything that is not the
// router's configuration (replicas, workload, number of routers, polls, exchange, index) stays.
//
// First all presets are halved: each round runs the better part of them on more seeds. Then, around
// the best two and the shipped policy, one key at a time takes each of a few values, and keeps one
// where the gain on the search's seeds has an interval clear of none. What comes out best by luck
// as much as by merit (the optimiser's curse) meets the shipped configuration again on seeds that
// the search has not seen, and of a trace on the half that it has not: the gain that is told is
// from there.
//
// The same arguments give the same result for any number of jobs. Throws std::invalid_argument as
// run() does.
[[nodiscard]] Result<Tuning> run_tune(const Scenario& scenario, const TuneOptions& options,
                                      const Registry& registry);

}  // namespace pointsman::sim
