// What one lock around the decision core costs: each thread takes requests through their whole life
// (decision, first token, end: three times the lock) as fast as it can, which no proxy does: its
// threads spend ten times as long on each request outside.
//
//   bench_micro --benchmark_filter=one_lock

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/shared_router.h"
#include "support/policy.h"

namespace pointsman {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kReplicas = 64;
constexpr std::size_t kBlocks = 96;  // 6 kB of text

FleetView make_fleet() {
  FleetView fleet;
  fleet.pools.emplace_back();
  Rng rng(7);
  for (ReplicaIndex i = 0; i < kReplicas; ++i) {
    fleet.replicas.push_back({rng(), 1.0, 0, true});
    fleet.pools[0].usable.push_back(i);
  }
  return fleet;
}

void one_lock(benchmark::State& state) {
  static const FleetView fleet = make_fleet();
  static SharedRouter router({}, [] {
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    pipelines.push_back(testing_support::make_policy("least_work"));
    return pipelines;
  }());
  const SteadyClock clock;
  Rng rng(static_cast<std::uint64_t>(state.thread_index()) + 1);
  std::vector<std::vector<BlockHash>> chains(200, std::vector<BlockHash>(kBlocks));
  for (auto& chain : chains) {
    for (BlockHash& hash : chain) hash = rng();
  }
  std::uint64_t request = 0;
  std::vector<double> held;  // ns
  held.reserve(std::size_t{1} << 22);
  for (auto _ : state) {
    Features features;
    features.prompt_tokens = kBlocks * 16 + 8;
    features.session_key = rng() | 1;
    features.blocks = chains[request++ % chains.size()];
    features.stream = true;
    const TimePoint asked = clock.now();
    TimePoint start{};
    Decision decision = router.with([&](Router& r) {
      start = clock.now();
      return r.decide(features, fleet, {}, asked);
    });
    if (held.size() < held.capacity()) {
      held.push_back(static_cast<double>((clock.now() - start).count()));
    }
    router.with([&](Router& r) { r.first_token(decision.charge, asked + microseconds(50)); });
    router.with(
        [&](Router& r) { r.finished(std::move(decision.charge), {}, asked + microseconds(100)); });
  }
  const auto quantile = [&](double share) {
    const auto at =
        held.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(held.size() - 1));
    std::nth_element(held.begin(), at, held.end());
    return benchmark::Counter(*at, benchmark::Counter::kAvgThreads);
  };
  // How long decide() keeps the lock, by the wall clock: a thread that the system interrupts
  // meanwhile keeps it all the longer.
  state.counters["held_p50_ns"] = quantile(0.5);
  state.counters["held_p90_ns"] = quantile(0.9);
  state.counters["held_p99_ns"] = quantile(0.99);
}
BENCHMARK(one_lock)->Threads(1)->Threads(2)->Threads(4)->UseRealTime();

}  // namespace
}  // namespace pointsman
