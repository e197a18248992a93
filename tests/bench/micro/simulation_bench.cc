// What a whole simulated run costs: `requests_per_s` of real time on one core, the decisions of the
// shipped policies included, and `bytes_per_request`, what is kept of each that has ended.

#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include "policies/register.h"
#include "sim/cluster.h"
#include "sim/request_log.h"

namespace pointsman::sim {
namespace {

void run_scenario(benchmark::State& state, const std::string& scenario_name,
                  const std::string& policy) {
  const Registry registry = make_registry();
  Scenario scenario = *find_scenario_preset(scenario_name);
  scenario.measure.requests = 1'000'000;
  Arm arm;
  arm.policy.preset = policy;
  for (auto _ : state) benchmark::DoNotOptimize(run(scenario, arm, registry, 1));
  state.counters["requests_per_s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * scenario.measure.requests,
                         benchmark::Counter::kIsRate);
  state.counters["bytes_per_request"] = sizeof(RequestLog::Entry);
}

BENCHMARK_CAPTURE(run_scenario, set_a_round_robin, "set_a", "round_robin")
    ->Unit(benchmark::kSecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(run_scenario, set_a_least_work, "set_a", "least_work")
    ->Unit(benchmark::kSecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(run_scenario, ref70_least_work, "ref70", "least_work")
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

}  // namespace
}  // namespace pointsman::sim
