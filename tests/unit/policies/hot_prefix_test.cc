// What becomes of a prefix that is asked for more than its holder can serve.

#include <algorithm>
#include <cstdint>
#include <queue>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/router.h"
#include "support/policy.h"

namespace pointsman {
namespace {

using testing_support::make_policy;

constexpr std::uint32_t kReplicas = 8;
constexpr std::uint32_t kSharedBlocks = 256;    // 4,096 tokens that all prompts begin with
constexpr std::uint32_t kPromptTokens = 4'160;  // and 64 of their own
constexpr double kTokensPerSecond = 10'000;
constexpr int kRequests = 4'000;

struct Outcomes {
  std::uint32_t holders = 0;     // replicas that were sent any of the prompts
  std::uint64_t replicated = 0;  // as the router counts
  double most_to_mean = 0;       // requests on the busiest holder over their mean, second half
  double mean_wait_s = 0;        // to the first token, second half
};

// Requests at even distances to engines that compute one prompt after the other, each caching all
// that it computed. Every prompt is of another session.
Outcomes serve(const std::string& policy, double per_second) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(make_policy(policy));
  Router router({}, std::move(pipelines));
  FleetView fleet;
  fleet.pools.resize(1);
  for (ReplicaIndex i = 0; i < kReplicas; ++i) {
    fleet.replicas.push_back({i * 0x9e3779b97f4a7c15ULL + 1, 1.0, 0, true});
    fleet.pools[0].usable.push_back(i);
  }
  struct Flight {
    TimePoint done;
    Charge charge;
    std::uint32_t cached;
  };
  std::vector<std::queue<Flight>> engines(kReplicas);
  std::vector<TimePoint> free_at(kReplicas);
  std::vector<bool> holds(kReplicas);
  std::vector<int> requests(kReplicas);
  std::vector<BlockHash> chain(kSharedBlocks + 4);
  Outcomes outcomes;
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < kRequests; ++i) {
    now += from_seconds(1 / per_second);
    for (std::queue<Flight>& engine : engines) {
      for (; !engine.empty() && engine.front().done <= now; engine.pop()) {
        Flight& flight = engine.front();
        router.first_token(flight.charge, flight.done);
        router.finished(std::move(flight.charge),
                        {.prompt_tokens = kPromptTokens, .cached_tokens = flight.cached},
                        flight.done);
      }
    }
    for (std::uint32_t block = 0; block < chain.size(); ++block) {
      chain[block] = block < kSharedBlocks ? 1 + block : 1'000'000ULL + 10 * i + block;
    }
    const auto session = static_cast<std::uint64_t>(i) + 1;
    Features features;
    features.stream = true;
    features.prompt_tokens = kPromptTokens;
    features.session_key = session;
    features.blocks = chain;
    Decision decision = router.decide(features, fleet, {}, now);
    const ReplicaIndex replica = decision.order[0];
    const std::uint32_t cached = holds[replica] ? kSharedBlocks * 16 : 0;
    free_at[replica] =
        std::max(free_at[replica], now) + from_seconds((kPromptTokens - cached) / kTokensPerSecond);
    engines[replica].push({free_at[replica], std::move(decision.charge), cached});
    holds[replica] = true;
    if (i >= kRequests / 2) {
      ++requests[replica];
      outcomes.mean_wait_s += to_seconds(free_at[replica] - now) / (kRequests / 2.0);
    }
  }
  for (std::queue<Flight>& engine : engines) {
    for (; !engine.empty(); engine.pop()) {
      router.finished(std::move(engine.front().charge), {}, engine.front().done);
    }
  }
  outcomes.holders = static_cast<std::uint32_t>(std::ranges::count(holds, true));
  for (const std::uint64_t count : router.counters().replications) outcomes.replicated += count;
  outcomes.most_to_mean =
      std::ranges::max(requests) / (kRequests / 2.0 / std::max(outcomes.holders, 1U));
  return outcomes;
}

// A holder computes 156 such prompts a second.
class HotPrefix : public testing::TestWithParam<std::string> {};

TEST_P(HotPrefix, ACoolOneStaysWhereItIs) {
  const Outcomes cool = serve(GetParam(), 1);
  EXPECT_EQ(cool.holders, 1U);
  EXPECT_EQ(cool.replicated, 0U);
}

TEST_P(HotPrefix, IsHeldByMoreReplicasTheMoreItIsAskedFor) {
  const Outcomes warm = serve(GetParam(), 10);
  const Outcomes hot = serve(GetParam(), 300);
  const Outcomes hottest = serve(GetParam(), 1'000);
  EXPECT_GE(hot.holders, 2U) << "one could not keep up";
  EXPECT_EQ(hottest.holders, kReplicas) << "seven could hardly";
  EXPECT_LE(warm.holders, hot.holders);
  for (const Outcomes& outcomes : {warm, hot, hottest}) {
    EXPECT_EQ(outcomes.replicated, outcomes.holders - 1) << "each further copy is counted once";
    EXPECT_LT(outcomes.most_to_mean, 1.5) << "never all to one";
    EXPECT_LT(outcomes.mean_wait_s, 1) << "nobody is left with a queue";
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, HotPrefix,
                         testing::Values("least_work", "prefix_aware", "weighted"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace pointsman
