// What every policy of this program must do, whatever it prefers.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "core/router.h"
#include "policies/in_flight.h"
#include "policies/kv_headroom.h"
#include "policies/least_kv.h"
#include "policies/least_work.h"
#include "policies/peak_ewma.h"
#include "policies/prefix_hit.h"
#include "policies/queue_room.h"
#include "support/count_allocations.h"
#include "support/policy.h"
#include "support/pool_builder.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::allocations;
using testing_support::make_policy;
using testing_support::PoolBuilder;
using testing_support::ReplicaState;

constexpr std::string_view kStage = "stage_";

// Every preset, and every stage by itself: what is registered is tested. Only in_order is nothing
// by itself: its order is the sampler's.
std::vector<std::string> policy_names() {
  const Registry registry = make_registry();
  std::vector<std::string> names;
  for (const PresetInfo& preset : registry.presets()) names.push_back(preset.name);
  for (const StageInfo& stage : registry.stages()) {
    if (stage.type != "in_order") names.push_back(kStage.data() + stage.type);
  }
  return names;
}

std::unique_ptr<Pipeline> make_named(const std::string& name) {
  if (!name.starts_with(kStage)) return make_policy(name);
  static const Registry registry = make_registry();
  const StageSpec alone{.type = name.substr(kStage.size())};
  PolicySpec spec;
  for (const StageInfo& stage : registry.stages()) {
    if (stage.type != alone.type) continue;
    switch (stage.kind) {
      case StageKind::kFilter:
        spec.filters = {alone};
        break;
      case StageKind::kSampler:
        spec.sampler = alone;
        break;
      case StageKind::kScorer:
      case StageKind::kCostScorer:
        spec.scorers = {alone};
        break;
      case StageKind::kPicker:
        spec.picker = alone;
        break;
    }
  }
  auto built = registry.build(spec);
  if (!built) throw std::invalid_argument(built.error().message);
  return std::move(*built);
}

// A prompt of `blocks` blocks that begins as every other one of this stem.
std::vector<BlockHash> chain(std::uint64_t stem, std::size_t blocks) {
  Rng rng(stem);
  std::vector<BlockHash> hashes(blocks);
  for (BlockHash& hash : hashes) hash = rng();
  return hashes;
}

// Replicas in all sorts of states, the same for the same seed.
void add_varied(PoolBuilder& pool, std::size_t count, std::uint64_t seed, bool weights = true) {
  Rng rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    ReplicaState state;
    if (weights) state.weight = 0.25 + 4 * rng.unit();
    if (rng.below(4) != 0) state.kv = rng.unit();
    if (rng.below(4) != 0) state.waiting = static_cast<double>(rng.below(20));
    state.age = milliseconds(rng.below(6'000));
    if (rng.below(2) == 0) state.capacity = 10'000 + rng.below(500'000);
    state.decoding = static_cast<int>(rng.below(10));
    state.queued = static_cast<int>(rng.below(5));
    state.sent_since = static_cast<int>(rng.below(5));
    state.tokens = static_cast<std::uint32_t>(rng.below(9'000));
    state.matched = static_cast<std::uint32_t>(rng.below(3) == 0 ? rng.below(8) : 0);
    pool.add("replica-" + std::to_string(i), state);
  }
}

class PolicyContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    policy_ = make_named(GetParam());
    blocks_ = chain(9, 8);
  }
  // A request of its own session; without affinity only where `plain`.
  void ask(PoolBuilder& pool, std::uint64_t session) {
    pool.features.prompt_tokens = 8 * 16 + 5;
    pool.features.session_key = session;
    pool.features.blocks = blocks_;
    pool.features.stream = true;
  }

  std::unique_ptr<Pipeline> policy_;
  std::vector<BlockHash> blocks_;
};

TEST_P(PolicyContract, PicksOnlyCandidatesEachOnce) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    PoolBuilder pool;
    add_varied(pool, 2 + seed % 20, seed);
    pool.remove("replica-1");
    for (std::uint64_t i = 0; i < 20; ++i) {
      ask(pool, i % 4 == 0 ? 0 : Rng(i)());
      if (i % 5 == 0) pool.features.blocks = {};
      const std::vector<ReplicaIndex> order = pool.order(*policy_);
      ASSERT_GE(order.size(), 1U);
      ASSERT_LE(order.size(), Decision::kMaxReplicas);
      const std::set<ReplicaIndex> distinct(order.begin(), order.end());
      ASSERT_EQ(distinct.size(), order.size());
      for (const ReplicaIndex replica : order) {
        ASSERT_TRUE(std::find(pool.candidates().begin(), pool.candidates().end(), replica) !=
                    pool.candidates().end());
      }
    }
  }
}

TEST_P(PolicyContract, SameSeedAndSameHistoryGiveTheSameAnswers) {
  const auto run = [&] {
    const std::unique_ptr<Pipeline> policy = make_named(GetParam());
    PoolBuilder pool;
    add_varied(pool, 17, 5);
    std::vector<ReplicaIndex> picks;
    for (std::uint64_t i = 0; i < 300; ++i) {
      ask(pool, Rng(i / 3)());
      for (const ReplicaIndex replica : pool.order(*policy)) picks.push_back(replica);
      policy->feedback({.event = Feedback::Event::kFirstToken,
                        .replica = picks.back(),
                        .work_ahead = 500,
                        .ttft = milliseconds(10 + i % 7),
                        .now = pool.now});
      pool.now += milliseconds(7);
    }
    return picks;
  };
  EXPECT_EQ(run(), run());
}

TEST_P(PolicyContract, TheOrderInWhichReplicasAreListedChangesNoDistribution) {
  constexpr int kRuns = 3'000;
  // Fresh policies with fresh seeds, so that chance and start states are averaged out.
  const auto shares = [&](bool reversed) {
    PoolBuilder pool;
    add_varied(pool, 6, 12);
    if (reversed) {
      std::vector<ReplicaIndex> order(pool.candidates().begin(), pool.candidates().end());
      std::reverse(order.begin(), order.end());
      pool.order_candidates(order);
    }
    std::map<std::string, int> counts;
    const std::unique_ptr<Pipeline> shared = make_named(GetParam());
    const std::string& name = GetParam();
    const bool has_table = name.find("maglev") != std::string::npos ||
                           name.find("ring") != std::string::npos ||
                           name.find("prefix_aware") != std::string::npos ||
                           name.find("prefix_holders") != std::string::npos;
    for (int i = 0; i < kRuns; ++i) {
      pool.rng = Rng(static_cast<std::uint64_t>(i) + (reversed ? 1'000'000 : 0));
      ask(pool, Rng(static_cast<std::uint64_t>(i))());
      // The policies with a table to build keep it; the others start afresh each time.
      if (has_table) {
        pool.features.blocks = {};
        ++counts[pool.pick(*shared)];
      } else {
        ++counts[pool.pick(*make_named(GetParam()))];
      }
    }
    return counts;
  };
  std::map<std::string, int> forward = shares(false);
  std::map<std::string, int> backward = shares(true);
  for (int i = 0; i < 6; ++i) {
    const std::string name = "replica-" + std::to_string(i);
    // Five standard deviations of the difference of two such counts.
    const double share = (forward[name] + backward[name]) / (2.0 * kRuns);
    const double bound = 5 * std::sqrt(2 * kRuns * share * (1 - share)) + 1;
    EXPECT_NEAR(forward[name], backward[name], bound) << name;
  }
}

TEST_P(PolicyContract, OneCandidateIsChosenWhateverItsState) {
  PoolBuilder pool;
  pool.add("only", {.kv = 1.0, .waiting = 1'000, .queued = 100, .tokens = 100'000});
  ask(pool, 7);
  EXPECT_EQ(pool.pick(*policy_), "only");
}

TEST_P(PolicyContract, NoCandidateIsNoAnswer) {
  PoolBuilder pool;
  pool.add("a");
  pool.remove("a");
  ask(pool, 7);
  EXPECT_EQ(pool.pick(*policy_), "");
}

TEST_P(PolicyContract, AllSaturatedStillAnswers) {
  PoolBuilder pool;
  pool.add_uniform(8, {.kv = 1.0, .waiting = 100, .capacity = 1'000, .queued = 5, .tokens = 9'000});
  for (std::uint64_t i = 1; i < 50; ++i) {
    ask(pool, i);
    EXPECT_NE(pool.pick(*policy_), "");
  }
}

TEST_P(PolicyContract, AllStaleStillAnswersAndSpreads) {
  PoolBuilder pool;
  pool.add_uniform(4, {.kv = 0.1, .waiting = 0, .age = seconds(60)});
  std::map<std::string, int> counts;
  for (int i = 0; i < 400; ++i) {
    ask(pool, Rng(static_cast<std::uint64_t>(i))());
    const std::vector<BlockHash> own = chain(1'000 + static_cast<std::uint64_t>(i), 8);
    pool.features.blocks = own;
    const std::string chosen = pool.pick(*policy_);
    ++counts[chosen];
    pool.book(pool.index(chosen), 100);
  }
  EXPECT_EQ(counts.size(), 4U);
  for (const auto& [name, count] : counts) EXPECT_GE(count, 40) << name;
}

TEST_P(PolicyContract, ThousandsOfReplicasAreNoProblem) {
  PoolBuilder pool;
  add_varied(pool, 4'096, 3);
  std::set<std::string> chosen;
  for (std::uint64_t i = 1; i < 60; ++i) {
    ask(pool, Rng(i)());
    const std::vector<BlockHash> own = chain(1'000 + i, 8);
    pool.features.blocks = own;
    chosen.insert(pool.pick(*policy_));
  }
  EXPECT_FALSE(chosen.contains(""));
}

TEST_P(PolicyContract, FeedbackOfAnyKindAboutAnyReplicaIsFine) {
  PoolBuilder pool;
  add_varied(pool, 5, 4);
  for (std::uint64_t i = 0; i < 500; ++i) {
    ask(pool, Rng(i)());
    (void)pool.pick(*policy_);
    policy_->feedback({.event = static_cast<Feedback::Event>(i % 4),
                       .replica = static_cast<ReplicaIndex>(i % 9),
                       .cost = {10, 10},
                       .work_ahead = static_cast<std::int64_t>(i % 3) * 1'000,
                       .ttft = milliseconds(static_cast<int>(i % 11) * 100 - 100),
                       .now = pool.now});
    pool.now += i % 100 == 0 ? seconds(100'000) : milliseconds(3);
    if (i % 17 == 0) policy_->forget(static_cast<ReplicaIndex>(i % 9));
  }
  EXPECT_NE(pool.pick(*policy_), "");
}

TEST_P(PolicyContract, AWarmDecisionDoesNotAllocate) {
  PoolBuilder pool;
  add_varied(pool, 64, 6);
  std::vector<std::vector<BlockHash>> prompts;
  for (std::uint64_t i = 0; i < 40; ++i) prompts.push_back(chain(i, 8));
  std::vector<ReplicaIndex> order(Decision::kMaxReplicas);
  const auto decide = [&](std::uint64_t i) {
    ask(pool, Rng(i % 37)());
    pool.features.blocks = prompts[i % prompts.size()];
    Context context = pool.context();
    const std::size_t count = policy_->choose(context, pool.candidates(), order);
    policy_->picked(context, order[0]);
    policy_->feedback({.event = Feedback::Event::kFirstToken,
                       .replica = order[count - 1],
                       .work_ahead = 700,
                       .ttft = milliseconds(40),
                       .now = pool.now});
  };
  for (std::uint64_t i = 0; i < 2'000; ++i) decide(i);
  const std::uint64_t before = allocations.load();
  for (std::uint64_t i = 0; i < 2'000; ++i) decide(i);
  EXPECT_EQ(allocations.load() - before, 0U);
}

// All of a decision, with the engines' own word for half of the replicas, and all of them believed
// less since a third of the answers found nothing cached.
TEST_P(PolicyContract, AWarmDecisionOfARouterWithEventsDoesNotAllocate) {
  constexpr ReplicaIndex kReplicas = 64;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(make_named(GetParam()));
  Router router({}, std::move(pipelines));
  FleetView fleet;
  fleet.pools.emplace_back();
  for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
    fleet.replicas.push_back({.identity = replica + 1, .usable = true});
    fleet.pools[0].usable.push_back(replica);
  }
  std::vector<std::vector<BlockHash>> prompts;
  for (std::uint64_t i = 0; i < 40; ++i) prompts.push_back(chain(i, 8));
  for (ReplicaIndex replica = 0; replica < kReplicas; replica += 2) {
    router.engine_caches().set_trust(replica, Trust::kTrusted);
    router.engine_caches().store({.replica = replica}, std::nullopt,
                                 prompts[replica % prompts.size()]);
  }
  const TimePoint now{std::chrono::hours(1)};
  const auto decide = [&](std::uint64_t i) {
    Features features;
    features.prompt_tokens = 150;
    features.session_key = 1 + i % 7;
    features.blocks = prompts[i % prompts.size()];
    features.exact_blocks = 8;
    Decision decision = router.decide(features, fleet, {}, now);
    const std::uint32_t cached = i % 3 == 0 ? 0 : 128;
    router.finished(std::move(decision.charge), {.cached_tokens = cached}, now);
  };
  for (std::uint64_t i = 0; i < 8'000; ++i) decide(i);
  EXPECT_EQ(router.needs().blocks, router.prefix_trust().any_doubted());
  const std::uint64_t before = allocations.load();
  for (std::uint64_t i = 0; i < 1'000; ++i) decide(i);
  EXPECT_EQ(allocations.load() - before, 0U);
}

INSTANTIATE_TEST_SUITE_P(Presets, PolicyContract, testing::ValuesIn(policy_names()),
                         [](const auto& one) { return one.param; });

// Extreme states for scores and costs.
void add_extreme(PoolBuilder& pool) {
  add_varied(pool, 200, 77);
  pool.add("full", {.kv = 1.0, .waiting = 1e6, .capacity = 1, .queued = 50, .tokens = 4'000'000});
  pool.add("light", {.weight = 1e-6, .queued = 3, .tokens = 4'000'000'000U});
  pool.add("heavy", {.weight = 1e6});
}

template <typename Stage>
class ScoreContract : public testing::Test {};
using Scorers = testing::Types<PrefixHit, KvHeadroom, QueueRoom>;
TYPED_TEST_SUITE(ScoreContract, Scorers);

TYPED_TEST(ScoreContract, ScoresLieBetweenZeroAndOneAndDependOnTheReplicaAlone) {
  PoolBuilder pool;
  add_extreme(pool);
  for (const std::uint32_t prompt : {0U, 1U, 133U, 4'000'000'000U}) {
    pool.features.prompt_tokens = prompt;
    TypeParam scorer{typename TypeParam::Options{}};
    const Context context = pool.context();
    std::vector<float> together(pool.size());
    scorer.score(context, pool.candidates(), together);
    for (std::size_t i = 0; i < pool.size(); ++i) {
      ASSERT_GE(together[i], 0.0F) << pool.name(pool.candidates()[i]);
      ASSERT_LE(together[i], 1.0F) << pool.name(pool.candidates()[i]);
      float alone = 0;
      scorer.score(context, pool.candidates().subspan(i, 1), std::span(&alone, 1));
      ASSERT_EQ(alone, together[i]);
    }
  }
}

template <typename Stage>
class CostContract : public testing::Test {};
using Costs = testing::Types<InFlight, PeakEwma, LeastKv, LeastWork>;
TYPED_TEST_SUITE(CostContract, Costs);

TYPED_TEST(CostContract, EveryKeyIsFiniteAndDependsOnTheReplicaAlone) {
  PoolBuilder pool;
  add_extreme(pool);
  TypeParam scorer{typename TypeParam::Options{}};
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    scorer.feedback({.event = Feedback::Event::kFirstToken,
                     .replica = static_cast<ReplicaIndex>(i % 50),
                     .work_ahead = static_cast<std::int64_t>(i * 1'000),
                     .ttft = i % 3 == 0 ? Duration(1) : Duration(std::chrono::hours(100)),
                     .now = pool.now});
    pool.now += i % 400 == 0 ? Duration(std::chrono::hours(5'000)) : Duration(1);
  }
  for (const std::uint32_t prompt : {0U, 1U, 133U, 4'000'000'000U}) {
    pool.features.prompt_tokens = prompt;
    const Context context = pool.context();
    std::vector<CostKeys> together(pool.size());
    scorer.cost(context, pool.candidates(), together);
    for (std::size_t i = 0; i < pool.size(); ++i) {
      for (const double key : together[i]) ASSERT_TRUE(std::isfinite(key)) << pool.name(i);
      CostKeys alone{};
      scorer.cost(context, pool.candidates().subspan(i, 1), std::span(&alone, 1));
      ASSERT_EQ(alone, together[i]);
    }
  }
}

}  // namespace
}  // namespace pointsman
