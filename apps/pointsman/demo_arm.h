#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "replica/load_generator.h"
#include "sim/engine_config.h"

namespace pointsman {

// One way to route, that the demo measures.
struct DemoArm {
  std::string name;         // for --arms
  std::string title;        // in the table
  std::string preset;       // the router's policy
  bool segregated = false;  // pools 6/1/1 instead of one pool of 8
};

struct DemoOptions {
  std::uint64_t requests = 2'000;  // measured, an arm
  std::uint64_t seed = 1;
  double speed = 6;  // engine seconds per second
};

struct DemoResult {
  LoadResult load;
  double hit_rate = 0;  // cached ÷ prompt tokens, as the replicas counted them
  std::uint64_t preemptions = 0;
  double lateness_s = 0;  // mean delay of an engine step, engine seconds
  double busy = 0;        // share of the time that the engines were in steps
};

// Called now and then with the number of requests that have ended, of how many.
using DemoProgress = std::function<void(std::uint64_t ended, std::uint64_t of)>;

// Eight fresh simulated replicas, the router with the arm's policy as a child process before them,
// and simulated users before that. Ends early, with an error, when `interrupted` says so. `folder`
// is for the router's configuration and log.
[[nodiscard]] Result<DemoResult> run_demo_arm(const DemoArm& arm, const DemoOptions& options,
                                              const std::string& folder,
                                              const DemoProgress& progress,
                                              const std::function<bool()>& interrupted);

// What every arm is measured with.
[[nodiscard]] sim::EngineConfig demo_engine();
[[nodiscard]] sim::WorkloadSpec demo_workload();

}  // namespace pointsman
