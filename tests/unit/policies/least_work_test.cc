#include "policies/least_work.h"

#include <array>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/session_ring.h"
#include "support/policy.h"
#include "support/pool_builder.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using testing_support::make_policy;
using testing_support::PoolBuilder;

double cost_of(PoolBuilder& pool, const std::string& name, const LeastWork::Options& options = {}) {
  LeastWork scorer(options);
  const Context context = pool.context();
  const ReplicaIndex replica = pool.index(name);
  CostKeys keys{};
  scorer.cost(context, std::span(&replica, 1), std::span(&keys, 1));
  return keys[0];
}

// cost = s * (400 + Q + u_shared + 3 u_private + 64 L d) + 200,000 max(0, kv + prompt/capacity -
// .95), where d counts what is queued there as well as what decodes
TEST(LeastWork, TheCostIsTheFormula) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add("idle");
  EXPECT_DOUBLE_EQ(cost_of(pool, "idle"), 400 + 3 * 1'000);
  pool.add("busy", {.decoding = 5, .queued = 2, .tokens = 700});
  EXPECT_DOUBLE_EQ(cost_of(pool, "busy"), 400 + 1'400 + 3 * 1'000 + 64 * 7);
  pool.add("holder", {.matched = 40});  // 40 blocks of 16: 640 tokens
  EXPECT_DOUBLE_EQ(cost_of(pool, "holder"), 400 + 3 * 360);
  pool.add("slow", {.weight = 0.5});
  EXPECT_DOUBLE_EQ(cost_of(pool, "slow"), 2 * (400 + 3 * 1'000));
}

TEST(LeastWork, OutstandingPrefillOfOtherRoutersCountsAsOnesOwn) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add("a", {.decoding = 1, .queued = 1, .tokens = 700});
  pool.hear_peer(0, {0, 3, 2'000});
  pool.hear_peer(1, {0, 1, 50});
  // d stays the own number: peers' requests in flight are the same for all of them.
  EXPECT_DOUBLE_EQ(cost_of(pool, "a"), 400 + 700 + 2'050 + 3 * 1'000 + 64 * 2);
}

TEST(LeastWork, SharedTokensWeighOneAndPrivateOnesThree) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.shared_blocks = 25;  // 400 tokens seen under several sessions
  pool.add("none");
  pool.add("part of the shared", {.matched = 10});
  pool.add("all of the shared", {.matched = 25});
  pool.add("beyond", {.matched = 40});
  EXPECT_DOUBLE_EQ(cost_of(pool, "none"), 400 + 400 + 3 * 600);
  EXPECT_DOUBLE_EQ(cost_of(pool, "part of the shared"), 400 + 240 + 3 * 600);
  EXPECT_DOUBLE_EQ(cost_of(pool, "all of the shared"), 400 + 3 * 600);
  EXPECT_DOUBLE_EQ(cost_of(pool, "beyond"), 400 + 3 * 360);
  pool.shared_blocks = 1'000;
  EXPECT_DOUBLE_EQ(cost_of(pool, "none"), 400 + 1'000) << "no more is shared than there is";
}

TEST(LeastWork, KvUseCostsBeyondTheKnee) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add("room", {.kv = 0.5, .capacity = 10'000});
  pool.add("tight", {.kv = 0.875, .capacity = 10'000});
  EXPECT_DOUBLE_EQ(cost_of(pool, "room"), 3'400);
  EXPECT_NEAR(cost_of(pool, "tight"), 3'400 + 200'000 * (0.875 + 0.1 - 0.95), 1e-3);
  pool.add("sent since", {.kv = 0.875, .capacity = 10'000, .sent_since = 1, .tokens = 500});
  EXPECT_NEAR(cost_of(pool, "sent since"), 3'964 + 200'000 * (0.875 + 0.05 + 0.1 - 0.95), 1e-3);
}

TEST(LeastWork, UnknownKvIsAHalfAndUnknownCapacityAddsNothing) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 50'000;
  pool.add("silent");
  EXPECT_DOUBLE_EQ(cost_of(pool, "silent"), 400 + 150'000) << "0.5 + 0 is below the knee";
  pool.add("stale", {.kv = 0.99, .age = std::chrono::seconds(60), .capacity = 100'000});
  EXPECT_NEAR(cost_of(pool, "stale"), 400 + 150'000 + 200'000 * (0.5 + 0.5 - 0.95), 1e-3);
  pool.add("no capacity", {.kv = 0.875});
  EXPECT_DOUBLE_EQ(cost_of(pool, "no capacity"), 400 + 150'000);
  pool.add("configured", {.configured = 100'000});
  EXPECT_NEAR(cost_of(pool, "configured"), 400 + 150'000 + 200'000 * (0.5 + 0.5 - 0.95), 1e-3);
}

TEST(LeastWork, EveryConstantIsAnOption) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.shared_blocks = 25;
  pool.add("a", {.kv = 0.75, .capacity = 10'000, .decoding = 2, .queued = 1, .tokens = 100});
  LeastWork::Options options;
  options.base_tokens = 10;
  options.private_weight = 2;
  options.shared_weight = 0.5;
  options.decode_tokens = 7;
  options.routers = 3;
  options.kv_weight = 1'000;
  options.kv_knee = 0.75;
  EXPECT_NEAR(cost_of(pool, "a", options), 10 + 100 + 0.5 * 400 + 2 * 600 + 7 * 3 * 3 + 1'000 * 0.1,
              1e-6);
}

std::string home_of(PoolBuilder& pool, std::uint64_t session) {
  const Context context = pool.context();
  std::vector<ReplicaIndex> all(context.replicas.size());
  std::iota(all.begin(), all.end(), ReplicaIndex{0});
  std::array<ReplicaIndex, 1> home{};
  rendezvous(session, all, context.replicas, home);
  return std::string(1, static_cast<char>('a' + home[0]));
}

TEST(LeastWork, OfSeveralRoutersEachSendsAnUnknownSessionHome) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  for (const char* name : {"a", "b", "c", "d"}) pool.add(name, {.kv = 0.2, .waiting = 0});
  const auto policy = make_policy("least_work", {{"routers", 4.0}});
  std::set<std::string> homes;
  for (std::uint64_t session = 1; session <= 20; ++session) {
    pool.features.session_key = session * 0x9e37'79b9'7f4a'7c15ULL;
    const std::string home = home_of(pool, pool.features.session_key);
    EXPECT_EQ(pool.pick(*policy), home);
    homes.insert(home);
  }
  EXPECT_GE(homes.size(), 3U);
}

TEST(LeastWork, AHomeHasNoSayWhereThereIsOneRouterOrThePrefixIsKnown) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.features.session_key = 0x9e37'79b9'7f4a'7c15ULL;
  pool.shared_blocks = 25;
  for (const char* name : {"a", "b", "c", "d"}) pool.add(name, {.matched = 25});
  const std::string home = home_of(pool, pool.features.session_key);
  LeastWork::Options options;
  EXPECT_DOUBLE_EQ(cost_of(pool, home), 400 + 3 * 600) << "one router";
  options.routers = 2;
  options.home_trust = 0.75;
  LeastWork scorer(options);
  const std::vector<ReplicaIndex> all = {0, 1, 2, 3};
  std::vector<CostKeys> keys(4);
  const auto home_cost = [&] {
    scorer.cost(pool.context(), all, keys);
    return keys[pool.index(home)][0];
  };
  EXPECT_DOUBLE_EQ(home_cost(), 400 + 3 * 600 * 0.25) << "holders of the shared part tell nothing";
  PoolBuilder known;
  known.features = pool.features;
  known.shared_blocks = 25;
  for (const char* name : {"a", "b", "c"}) known.add(name);
  known.add("d", {.matched = 26});
  scorer.cost(known.context(), all, keys);
  EXPECT_DOUBLE_EQ(keys[0][0], 400 + 400 + 3 * 600);
  EXPECT_DOUBLE_EQ(keys[3][0], 400 + 3 * 584);
}

TEST(LeastWork, NoHomeIsGuessedWhereItsEngineTellsWhatItHolds) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.features.session_key = 0x9e37'79b9'7f4a'7c15ULL;
  for (const char* name : {"a", "b", "c", "d"}) pool.add(name);
  const ReplicaIndex home = pool.index(home_of(pool, pool.features.session_key));
  LeastWork::Options options;
  options.routers = 2;
  options.home_trust = 0.75;
  LeastWork scorer(options);
  const std::vector<ReplicaIndex> all = {0, 1, 2, 3};
  const auto home_cost = [&](const Context& context) {
    std::vector<CostKeys> keys(4);
    scorer.cost(context, all, keys);
    return keys[home][0];
  };
  EngineCaches caches({});
  pool.engine_caches = &caches;
  EXPECT_DOUBLE_EQ(home_cost(pool.context()), 400 + 3 * 1'000 * 0.25) << "it tells nothing";
  caches.set_trust((home + 1) % 4, Trust::kTrusted);
  EXPECT_DOUBLE_EQ(home_cost(pool.context()), 400 + 3 * 1'000 * 0.25) << "another one does";
  caches.set_trust(home, Trust::kTrusted);
  EXPECT_DOUBLE_EQ(home_cost(pool.context()), 400 + 3 * 1'000);
  caches.set_trust(home, Trust::kGap);
  EXPECT_DOUBLE_EQ(home_cost(pool.context()), 400 + 3 * 1'000 * 0.25);
  Context context = pool.context();
  context.shared_index = true;
  EXPECT_DOUBLE_EQ(home_cost(context), 400 + 3 * 1'000);
}

TEST(LeastWork, AHomeWithMuchWorkBeforeItIsLeft) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.features.session_key = 0x9e37'79b9'7f4a'7c15ULL;
  for (const char* name : {"a", "b", "c", "d"}) pool.add(name, {.kv = 0.2, .waiting = 0});
  const auto policy = make_policy("least_work", {{"routers", 4.0}});
  const std::string home = home_of(pool, pool.features.session_key);
  pool.book(pool.index(home), 2'500);
  EXPECT_EQ(pool.pick(*policy), home) << "2,500 + 256 + 150 < 3,000";
  pool.book(pool.index(home), 500);
  EXPECT_NE(pool.pick(*policy), home) << "3,000 + 512 + 150 > 3,000";
}

TEST(LeastWork, TheHolderWinsUntilWorkPilesUpThere) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add("holder", {.kv = 0.2, .waiting = 0, .matched = 50});
  pool.add("other", {.kv = 0.2, .waiting = 0});
  const auto policy = make_policy("least_work");
  EXPECT_EQ(pool.pick(*policy), "holder");
  pool.book(0, 2'300);
  EXPECT_EQ(pool.pick(*policy), "holder") << "2,300 + 64 + 600 < 3,000";
  pool.book(0, 200);
  EXPECT_EQ(pool.pick(*policy), "other") << "2,500 + 128 + 600 > 3,000";
}

TEST(LeastWork, CandidatesAreFilteredByKvAndReportedWaitingOnly) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add("kv", {.kv = 0.93, .waiting = 0, .matched = 60});
  pool.add("waiting", {.kv = 0.1, .waiting = 16, .matched = 60});
  // 20 own requests without a first token and 40,000 tokens outstanding: the cost's business.
  pool.add("own", {.kv = 0.1, .waiting = 0, .queued = 20, .tokens = 2'000});
  EXPECT_EQ(pool.pick(*make_policy("least_work")), "own");
  EXPECT_EQ(pool.reason, Reason::kPolicy);
  pool.report(pool.index("own"), 0.99, 0.0);
  EXPECT_NE(pool.pick(*make_policy("least_work")), "");
  EXPECT_EQ(pool.reason, Reason::kAllSaturated);
}

TEST(LeastWork, TiesGoToAFreshReadingThenToFewerInFlightThenToChance) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 100;
  pool.add("silent");
  pool.add("fresh", {.kv = 0.3, .waiting = 0});
  EXPECT_EQ(pool.shares(*make_policy("least_work"), 50).at("fresh"), 50);

  PoolBuilder level;
  level.features.prompt_tokens = 100;
  level.add("more", {.kv = 0.3, .decoding = 2});
  level.add("fewer", {.kv = 0.3, .decoding = 1});
  const auto policy = make_policy("least_work", {{"decode_tokens", 0.0}});
  EXPECT_EQ(level.shares(*policy, 50).at("fewer"), 50);
}

TEST(LeastWork, AFewChoicesKeepTheHolder) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 1'000;
  pool.add_uniform(30, {.kv = 0.2, .waiting = 0});
  pool.add("holder", {.kv = 0.2, .waiting = 0, .matched = 60});
  pool.add("lesser holder", {.kv = 0.2, .waiting = 0, .matched = 20});
  const auto policy = make_policy("least_work", {{"choices", 2.0}});
  EXPECT_EQ(pool.shares(*policy, 200).at("holder"), 200);
  pool.remove("holder");
  EXPECT_EQ(pool.shares(*policy, 200).at("lesser holder"), 200);
}

class Speeds : public testing::Test {
 protected:
  // Streams whose first token takes `factor` times as long as 50 us a token.
  void learn(std::initializer_list<double> factors, int samples) {
    Rng rng(4);
    for (int i = 0; i < samples; ++i) {
      ReplicaIndex replica = 0;
      for (const double factor : factors) {
        const std::int64_t work = 100 + static_cast<std::int64_t>(rng.below(5'000));
        const double noise = 0.8 + 0.4 * rng.unit();
        const Context context = pool_.context();
        scorer_.picked(context, replica);
        scorer_.feedback(
            {.event = Feedback::Event::kFirstToken,
             .replica = replica,
             .work_ahead = work,
             .ttft = from_seconds(factor * noise * 50e-6 * (400 + static_cast<double>(work))),
             .now = pool_.now});
        ++replica;
      }
    }
  }
  double slowness(ReplicaIndex replica) {
    return scorer_.slowness(replica, pool_.context().replicas[replica].weight);
  }

  PoolBuilder pool_;
  LeastWork scorer_{LeastWork::Options{}};
};

TEST_F(Speeds, AnEqualFleetStaysAtOneWhateverItsSpeed) {
  pool_.add_uniform(5);
  learn({7, 7.5, 6.5, 8, 7}, 100);
  for (ReplicaIndex i = 0; i < 5; ++i) EXPECT_DOUBLE_EQ(slowness(i), 1.0) << "the dead band";
}

TEST_F(Speeds, AReplicaAtAThirdOfTheSpeedIsFoundOut) {
  pool_.add_uniform(5);
  learn({1, 1, 3, 1, 1}, 200);
  EXPECT_NEAR(slowness(2), 3.0, 0.4);
  EXPECT_DOUBLE_EQ(slowness(0), 1.0);
  scorer_.forget(2);
  EXPECT_DOUBLE_EQ(slowness(2), 1.0) << "a restarted replica may be another";
}

TEST_F(Speeds, StartAtOneOverWeightUntilLearnt) {
  pool_.add("small", {.weight = 0.5});
  pool_.add("big", {.weight = 4});
  EXPECT_DOUBLE_EQ(slowness(0), 2);
  EXPECT_DOUBLE_EQ(slowness(1), 0.25);
  learn({1, 1}, 10);
  EXPECT_DOUBLE_EQ(slowness(0), 2) << "ten streams are not enough";
}

TEST_F(Speeds, LearntAndConfiguredSpeedsAreOnOneScale) {
  pool_.add_uniform(4, {.weight = 2});
  learn({1, 1, 1}, 100);  // the fourth has had no stream yet
  EXPECT_DOUBLE_EQ(slowness(0), 0.5);
  EXPECT_DOUBLE_EQ(slowness(3), 0.5);
}

TEST_F(Speeds, SlowerReplicasGetLessWork) {
  const auto policy = make_policy("least_work");
  pool_.add_uniform(2, {.kv = 0.1, .waiting = 0});
  pool_.features.prompt_tokens = 500;
  for (int i = 0; i < 300; ++i) {
    const Context context = pool_.context();
    const auto replica = static_cast<ReplicaIndex>(i % 3 == 0);
    policy->picked(context, replica);
    policy->feedback({.event = Feedback::Event::kFirstToken,
                      .replica = replica,
                      .work_ahead = 1'600,
                      .ttft = milliseconds(replica == 1 ? 300 : 100),
                      .now = pool_.now});
  }
  const auto counts = pool_.burst(*policy, 100);
  EXPECT_GT(counts.at("r0"), 2 * counts.at("r1"));
}

}  // namespace
}  // namespace pointsman
