// What a decision costs, per preset and number of replicas: `choose` is the policy alone, `decide`
// a request's whole life in the Router (decision with booking, first token, end), prefix index
// included where the policy wants blocks.
//
//   bench_micro --benchmark_filter='/64$'

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/router.h"
#include "support/policy.h"

namespace pointsman {
namespace {

using std::chrono::microseconds;
using testing_support::make_policy;

constexpr std::size_t kSessions = 1'000;
constexpr std::size_t kBlocks = 96;  // 6 kB of text: an ordinary chat's prompt

// A pool at an ordinary load: fresh reports, a few requests in flight each.
class Pool {
 public:
  explicit Pool(std::size_t replicas) {
    fleet_.pools.emplace_back();
    Rng rng(7);
    for (ReplicaIndex i = 0; i < replicas; ++i) {
      fleet_.replicas.push_back({rng(), 1.0, 0, true});
      fleet_.pools[0].usable.push_back(i);
    }
    for (std::size_t session = 0; session < kSessions; ++session) {
      std::vector<BlockHash> chain(kBlocks);
      for (BlockHash& hash : chain) hash = rng();
      chains_.push_back(std::move(chain));
    }
  }

  [[nodiscard]] const FleetView& fleet() const { return fleet_; }

  [[nodiscard]] Features features(std::uint64_t request) const {
    Features features;
    const std::size_t session = request % kSessions;
    features.prompt_tokens = kBlocks * 16 + 8;
    features.session_key = session * 0x9e3779b97f4a7c15ULL + 1;
    features.blocks = chains_[session];
    features.stream = true;
    return features;
  }

  static Signals signals(ReplicaIndex replica, TimePoint now) {
    Signals signals;
    signals.observed_at = now;
    signals.max_age = std::chrono::hours(1);
    signals.kv_usage = 0.2F + 0.5F * static_cast<float>(replica % 97) / 97;
    signals.waiting = static_cast<float>(replica % 3);
    signals.kv_capacity_tokens = 400'000;
    return signals;
  }

 private:
  FleetView fleet_;
  std::vector<std::vector<BlockHash>> chains_;
};

void decide(benchmark::State& state, const std::string& preset) {
  const Pool pool(static_cast<std::size_t>(state.range(0)));
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(make_policy(preset));
  Router router({}, std::move(pipelines));
  TimePoint now{std::chrono::hours(1)};
  for (ReplicaIndex i = 0; i < pool.fleet().replicas.size(); ++i) {
    Signals signals = Pool::signals(i, now);
    signals.window = router.report_opened(i);
    router.report_applied(i, signals);
  }
  // As many requests in flight as replicas, each ending when its successor comes.
  std::vector<Charge> in_flight(pool.fleet().replicas.size());
  std::uint64_t request = 0;
  const auto one = [&] {
    now += microseconds(100);
    Charge& slot = in_flight[request % in_flight.size()];
    if (slot.held()) router.finished(std::move(slot), {}, now);
    Decision decision = router.decide(pool.features(request), pool.fleet(), {}, now);
    router.first_token(decision.charge, now + microseconds(50));
    slot = std::move(decision.charge);
    ++request;
    // Reports come in meanwhile, so that "sent since" stays of one interval.
    if (request % 16 == 0) {
      const auto replica = static_cast<ReplicaIndex>(request / 16 % in_flight.size());
      Signals signals = Pool::signals(replica, now);
      signals.window = router.report_opened(replica);
      router.report_applied(replica, signals);
    }
  };
  for (std::size_t i = 0; i < 4 * kSessions; ++i) one();
  for (auto _ : state) one();
  for (Charge& charge : in_flight) {
    if (charge.held()) router.finished(std::move(charge), {}, now);
  }
}

void choose(benchmark::State& state, const std::string& preset) {
  const Pool pool(static_cast<std::size_t>(state.range(0)));
  const std::size_t replicas = pool.fleet().replicas.size();
  const std::unique_ptr<Pipeline> policy = make_policy(preset);
  const TimePoint now{std::chrono::hours(1)};
  Ledger ledger;
  std::vector<Signals> signals;
  std::vector<Charge> charges;
  for (ReplicaIndex i = 0; i < replicas; ++i) {
    charges.push_back(ledger.book(i, {900, 300}, now, TimePoint{}));
    signals.push_back(Pool::signals(i, now));
    signals.back().window = ledger.open_window(i);
    if (i % 2 == 0) charges.push_back(ledger.book(i, {500, 500}, now, TimePoint{}));
  }
  std::vector<std::uint32_t> matched(replicas);
  const std::vector<PrefixMatches::Holder> holders = {{1, 40}};
  matched[1] = 40;
  const SaturationLimits limits;
  Rng rng(1);
  std::array<ReplicaIndex, Decision::kMaxReplicas> order{};
  std::uint64_t request = 0;
  const auto one = [&] {
    const Features features = pool.features(request++);
    Context context{.features = features,
                    .replicas = pool.fleet().replicas,
                    .signals = signals,
                    .ledger = ledger,
                    .matched_blocks = matched,
                    .holders = holders,
                    .shared_blocks = 4,
                    .limits = limits,
                    .now = now,
                    .rng = rng};
    benchmark::DoNotOptimize(policy->choose(context, pool.fleet().pools[0].usable, order));
    policy->picked(context, order[0]);
  };
  for (std::size_t i = 0; i < 2 * kSessions; ++i) one();
  for (auto _ : state) one();
  for (Charge& charge : charges) ledger.release(std::move(charge));
}

const int kRegistered = [] {
  const Registry registry = make_registry();
  for (const PresetInfo& preset : registry.presets()) {
    for (const auto& [name, function] : {std::pair{"choose/", &choose}, {"decide/", &decide}}) {
      benchmark::RegisterBenchmark((name + preset.name).c_str(), function, preset.name)
          ->Arg(8)
          ->Arg(64)
          ->Arg(512)
          ->Arg(4'096);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace pointsman
