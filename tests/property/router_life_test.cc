// Random lives of requests, reports and replicas through the whole decision core, once per preset.

#include <algorithm>

#include <gtest/gtest.h>

#include "core/router.h"
#include "support/policy.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::make_policy;

constexpr ReplicaIndex kReplicas = 12;

std::vector<std::string> preset_names() {
  const Registry registry = make_registry();
  std::vector<std::string> names;
  for (const PresetInfo& preset : registry.presets()) names.push_back(preset.name);
  return names;
}

// Nine replicas of the general pool, two for long prompts, one for long answers; some unusable.
FleetView make_fleet(Rng& rng) {
  FleetView fleet;
  fleet.pools.resize(3);
  fleet.pools[1].purpose = PoolPurpose::kLongContext;
  fleet.pools[2].purpose = PoolPurpose::kLongGeneration;
  for (ReplicaIndex i = 0; i < kReplicas; ++i) {
    const PoolIndex pool = i < 9 ? 0 : i < 11 ? 1 : 2;
    const bool usable = rng.below(5) != 0;
    fleet.replicas.push_back({i * 0x9e3779b97f4a7c15ULL + 1, 1.0 + (i % 3), pool, usable});
    if (usable) fleet.pools[pool].usable.push_back(i);
  }
  return fleet;
}

struct Held {
  Decision decision;
  Features features;
  std::vector<ReplicaIndex> failed;
};

// Everything that was decided, as numbers; the charges are all back at the end.
std::vector<std::uint64_t> live(const std::string& preset, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (int i = 0; i < 3; ++i) pipelines.push_back(make_policy(preset));
  Router::Options options;
  options.seed = seed;
  Router router(options, std::move(pipelines));
  std::vector<std::vector<BlockHash>> chains(30);
  for (auto& chain : chains) {
    chain.resize(1 + rng.below(60));
    for (BlockHash& hash : chain) hash = rng();
  }
  FleetView fleet = make_fleet(rng);
  TimePoint now{std::chrono::hours(1)};
  std::vector<Held> held;
  std::vector<std::uint64_t> log;

  const auto decide = [&](Held& request) {
    request.decision = router.decide(request.features, fleet, request.failed, now);
    const Decision& decision = request.decision;
    log.push_back(static_cast<std::uint64_t>(decision.reason) << 32 |
                  (decision.count > 0 ? decision.order[0] : kReplicas));
    if (decision.verdict != Decision::Verdict::kSend) {
      EXPECT_FALSE(decision.charge.held());
      return false;
    }
    for (const ReplicaIndex replica : decision.replicas()) {
      EXPECT_TRUE(fleet.replicas[replica].usable);
      EXPECT_TRUE(std::find(request.failed.begin(), request.failed.end(), replica) ==
                  request.failed.end());
    }
    EXPECT_LT(decision.predicted_cached_tokens, std::max(request.features.prompt_tokens, 1U));
    EXPECT_EQ(decision.charge.replica(), decision.order[0]);
    return true;
  };

  for (int step = 0; step < 3'000; ++step) {
    now += milliseconds(rng.below(40));
    switch (rng.below(10)) {
      case 0:
      case 1:
      case 2: {
        const std::vector<BlockHash>& chain = chains[rng.below(chains.size())];
        Held request;
        request.features.blocks = std::span(chain).first(1 + rng.below(chain.size()));
        request.features.prompt_tokens =
            static_cast<std::uint32_t>(request.features.blocks.size() * 16 + rng.below(16));
        if (rng.below(20) == 0) request.features.prompt_tokens = 50'000;
        if (rng.below(20) == 0) request.features.max_output_tokens = 9'000;
        request.features.session_key = rng.below(40);
        request.features.stream = rng.below(2) == 0;
        request.features.response_id = rng.below(10) == 0 ? 1 + rng.below(20) : 0;
        if (decide(request)) held.push_back(std::move(request));
        break;
      }
      case 3:
      case 4:
      case 5:
      case 6: {
        if (held.empty()) break;
        const auto at = held.begin() + static_cast<std::ptrdiff_t>(rng.below(held.size()));
        Charge charge = std::move(at->decision.charge);
        Held request;
        request.features = at->features;
        request.failed = at->failed;
        held.erase(at);
        const ReplicaIndex replica = charge.replica();
        if (rng.below(2) == 0) router.first_token(charge, now);
        if (rng.below(4) == 0) router.learn_response(1 + rng.below(20), replica, now);
        Outcome outcome;
        outcome.event = static_cast<Feedback::Event>(1 + rng.below(3));
        if (rng.below(2) == 0) outcome.cached_tokens = static_cast<std::uint32_t>(rng.below(500));
        router.finished(std::move(charge), outcome, now);
        if (outcome.event == Feedback::Event::kFailed && request.failed.size() < 3) {
          request.failed.push_back(replica);
          if (decide(request)) held.push_back(std::move(request));
        }
        break;
      }
      case 7: {
        const auto replica = static_cast<ReplicaIndex>(rng.below(kReplicas));
        Signals signals;
        signals.window = router.report_opened(replica);
        if (rng.below(4) == 0) break;  // the report failed
        signals.observed_at = now;
        signals.max_age = seconds(3);
        signals.kv_usage = static_cast<float>(rng.unit() * 1.2);
        if (rng.below(3) != 0) signals.waiting = static_cast<float>(rng.below(20));
        signals.kv_capacity_tokens = rng.below(3) == 0 ? 0 : 2'000 + rng.below(50'000);
        router.report_applied(replica, signals);
        break;
      }
      case 8:
        if (rng.below(10) == 0) router.forget(static_cast<ReplicaIndex>(rng.below(kReplicas)));
        break;
      default:
        if (rng.below(10) == 0) fleet = make_fleet(rng);
        break;
    }
  }
  for (Held& request : held) router.finished(std::move(request.decision.charge), {}, now);
  for (ReplicaIndex i = 0; i < kReplicas; ++i) {
    const Load& load = router.ledger()[i];
    EXPECT_EQ(load.in_flight, 0);
    EXPECT_EQ(load.awaiting, 0);
    EXPECT_EQ(load.awaiting_since_report, 0);
    EXPECT_EQ(load.prefill_tokens, 0);
    EXPECT_EQ(load.prompt_tokens, 0);
  }
  return log;
}

class RouterLife : public testing::TestWithParam<std::string> {};

TEST_P(RouterLife, ChargesComeBackToZeroAndTheSameCallsGiveTheSameDecisions) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<std::uint64_t> log = live(GetParam(), seed);
    EXPECT_GT(log.size(), 500U);
    EXPECT_EQ(log, live(GetParam(), seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, RouterLife, testing::ValuesIn(preset_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace pointsman
