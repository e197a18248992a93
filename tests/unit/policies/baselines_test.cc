// round_robin, random, least_connections, least_response_time.

#include <set>

#include <gtest/gtest.h>

#include "support/policy.h"
#include "support/pool_builder.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::make_policy;
using testing_support::PoolBuilder;

// Case D36: four idle servers, 400 requests one after the other, nothing to tell them apart.
class Ties : public testing::TestWithParam<const char*> {};

TEST_P(Ties, D36_EqualsAreAllChosen) {
  for (const bool reports : {false, true}) {
    PoolBuilder pool;
    if (reports) {
      pool.add_uniform(4, {.kv = 0.1, .waiting = 0});
    } else {
      pool.add_uniform(4);
    }
    pool.features.prompt_tokens = 500;
    const auto policy = make_policy(GetParam());
    for (const auto& [name, count] : pool.shares(*policy, 400)) EXPECT_GE(count, 60) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Ties,
                         testing::Values("round_robin", "random", "least_connections",
                                         "least_response_time", "ring_hash", "maglev", "least_kv",
                                         "global_least_kv", "prefix_aware", "weighted",
                                         "session_affinity", "least_work"),
                         [](const auto& one) { return std::string(one.param); });

// Case D29: what cannot be chosen does not count in the comparison.
class IneligibleHomes : public testing::TestWithParam<const char*> {};

TEST_P(IneligibleHomes, D29_AnUnhealthyReplicaWeighsNothing) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.5, .waiting = 1, .decoding = 5});
  pool.add("b", {.kv = 0.5, .waiting = 1, .decoding = 5});
  pool.add("c", {.kv = 0.0, .waiting = 0});
  pool.features.prompt_tokens = 160;
  const std::vector<BlockHash> prompt = {1, 2, 3};
  pool.features.blocks = prompt;
  const auto policy = make_policy(GetParam());
  pool.remove("c");
  const std::string home = pool.pick(*policy);
  EXPECT_NE(home, "c");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(pool.pick(*policy), home) << "no load of c moves it";
}

INSTANTIATE_TEST_SUITE_P(Presets, IneligibleHomes,
                         testing::Values("ring_hash", "maglev", "prefix_aware", "session_affinity"),
                         [](const auto& one) { return std::string(one.param); });

// The case's own numbers: b holds the prompt, c is idle and out.
TEST(Ineligible, D29_TheHolderIsChosenThoughAnUnhealthyReplicaIsIdle) {
  for (const char* preset : {"weighted", "least_work"}) {
    PoolBuilder pool;
    pool.add("a", {.decoding = 5});
    pool.add("b", {.decoding = 5, .matched = 4});
    pool.add("c");
    pool.features.prompt_tokens = 160;
    pool.remove("c");
    EXPECT_EQ(pool.shares(*make_policy(preset), 50).at("b"), 50) << preset;
  }
}

// Case D34: a request counts from the moment it is assigned, however slowly it connects.
class Bursts : public testing::TestWithParam<const char*> {};

TEST_P(Bursts, D34_ABurstIsSharedBeforeAnyAnswerComes) {
  PoolBuilder pool;
  pool.add_uniform(2, {.kv = 0.1, .waiting = 0});
  pool.features.prompt_tokens = 1'000;
  const auto policy = make_policy(GetParam());
  for (const auto& [name, count] : pool.burst(*policy, 16)) {
    EXPECT_GE(count, 7) << name;
    EXPECT_LE(count, 9) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, Bursts,
                         testing::Values("round_robin", "least_connections", "least_response_time",
                                         "least_kv", "global_least_kv", "prefix_aware", "weighted",
                                         "least_work"),
                         [](const auto& one) { return std::string(one.param); });

// Case D35: a new server is neither flooded nor starved, whatever the length of the prompts and
// wherever the older servers' requests have got to.
class Newcomers : public testing::TestWithParam<const char*> {
 protected:
  // The new server's part of the next 60 requests.
  static int share(bool reports, std::uint32_t prompt, int decoding, int queued) {
    PoolBuilder pool;
    testing_support::ReplicaState busy{.decoding = decoding, .queued = queued, .tokens = prompt};
    testing_support::ReplicaState fresh;
    if (reports) {
      busy.kv = 0.5;
      busy.waiting = 0;
      busy.capacity = 200'000;
      fresh.kv = 0.0;
      fresh.waiting = 0;
      fresh.capacity = 200'000;
    }
    pool.add("a", busy);
    pool.add("b", busy);
    pool.add("c", fresh);
    pool.features.prompt_tokens = prompt;
    const auto policy = make_policy(GetParam());
    // Before c's first answer, the others have shown times to the first token.
    for (ReplicaIndex replica : {0U, 1U}) {
      policy->feedback({.event = Feedback::Event::kFirstToken,
                        .replica = replica,
                        .work_ahead = 500,
                        .ttft = milliseconds(200),
                        .now = pool.now});
    }
    return pool.burst(*policy, 60).at("c");
  }
};

TEST_P(Newcomers, D35_ANewReplicaGetsItsShareAndNotAll) {
  for (const bool reports : {true, false}) {
    for (const std::uint32_t prompt : {4U, 500U}) {
      const int got = share(reports, prompt, 30, 0);
      EXPECT_GE(got, 10) << reports << ' ' << prompt;
      EXPECT_LE(got, 44) << reports << ' ' << prompt;
    }
  }
}

// Where the older servers' requests still wait for a first token. (least_kv is another matter: with
// 16 waiting they are saturated, and it prefers whoever is not.)
class NewcomersAmongQueues : public Newcomers {};

TEST_P(NewcomersAmongQueues, D35_ANewReplicaGetsItsShareAndNotAll) {
  for (const std::uint32_t prompt : {4U, 500U}) {
    const int got = share(/*reports=*/true, prompt, 20, 10);
    EXPECT_GE(got, 10) << prompt;
    EXPECT_LE(got, 44) << prompt;
  }
}

std::string preset_name(const testing::TestParamInfo<const char*>& one) {
  return one.param;
}

INSTANTIATE_TEST_SUITE_P(Presets, Newcomers,
                         testing::Values("round_robin", "random", "least_connections",
                                         "least_response_time", "least_kv", "weighted",
                                         "least_work"),
                         preset_name);
INSTANTIATE_TEST_SUITE_P(Presets, NewcomersAmongQueues,
                         testing::Values("round_robin", "random", "least_connections",
                                         "least_response_time", "least_work"),
                         preset_name);

TEST(RoundRobin, EachInTurn) {
  PoolBuilder pool;
  pool.add_uniform(3);
  const auto policy = make_policy("round_robin");
  std::vector<std::string> picks;
  for (int i = 0; i < 9; ++i) picks.push_back(pool.pick(*policy));
  for (std::size_t i = 3; i < picks.size(); ++i) EXPECT_EQ(picks[i], picks[i - 3]);
  EXPECT_EQ(std::set(picks.begin(), picks.begin() + 3).size(), 3U);
}

TEST(RoundRobin, WeightsAreProportionalAndSpreadOverTheTurn) {
  PoolBuilder pool;
  pool.add("half", {.weight = 0.5});
  pool.add("one", {.weight = 1});
  pool.add("three", {.weight = 3});
  const auto policy = make_policy("round_robin");
  std::string last;
  int repeats = 0;
  std::map<std::string, int> counts;
  for (int i = 0; i < 900; ++i) {
    const std::string chosen = pool.pick(*policy);
    ++counts[chosen];
    repeats = chosen == last ? repeats + 1 : 0;
    EXPECT_LE(repeats, 3);
    last = chosen;
  }
  EXPECT_NEAR(counts["half"], 100, 2);
  EXPECT_NEAR(counts["one"], 200, 2);
  EXPECT_NEAR(counts["three"], 600, 2);
}

TEST(RoundRobin, AReplicaThatLeavesAndReturnsIsNotOwedAnything) {
  PoolBuilder pool;
  pool.add_uniform(3);
  const auto policy = make_policy("round_robin");
  (void)pool.shares(*policy, 30);
  pool.remove("r1");
  (void)pool.shares(*policy, 1'000);
  pool.restore("r1");
  for (const auto& [name, count] : pool.shares(*policy, 30)) EXPECT_NEAR(count, 10, 1) << name;
}

TEST(RandomPolicy, WeightsAreProportional) {
  PoolBuilder pool;
  pool.add("one", {.weight = 1});
  pool.add("two", {.weight = 2});
  pool.add("seven", {.weight = 7});
  const auto policy = make_policy("random");
  const auto counts = pool.shares(*policy, 10'000);
  EXPECT_NEAR(counts.at("one"), 1'000, 150);
  EXPECT_NEAR(counts.at("two"), 2'000, 200);
  EXPECT_NEAR(counts.at("seven"), 7'000, 250);
}

TEST(RandomPolicy, ManyWeightsFarApartAreStillProportional) {
  PoolBuilder pool;
  pool.add("heavy", {.weight = 1'000});
  for (int i = 0; i < 99; ++i) pool.add("light" + std::to_string(i), {.weight = 1});
  const auto policy = make_policy("random");
  const auto counts = pool.shares(*policy, 10'000);
  EXPECT_NEAR(counts.at("heavy"), 10'000 * 1'000.0 / 1'099, 200);
}

TEST(LeastConnections, FewestInFlightOverWeight) {
  PoolBuilder pool;
  pool.add("a", {.decoding = 4});
  pool.add("b", {.decoding = 2, .queued = 1});
  pool.add("big", {.weight = 4, .decoding = 8});
  const auto policy = make_policy("least_connections");
  EXPECT_EQ(pool.pick(*policy), "big") << "8/4 < 3 < 4";
  for (int i = 0; i < 5; ++i) pool.book(pool.index("big"), 1);
  EXPECT_EQ(pool.pick(*policy), "b") << "3 < 13/4";
}

TEST(LeastConnections, TwoChoicesTakeTheBetterOfTwoDistinctOnes) {
  PoolBuilder pool;
  pool.add("worst", {.decoding = 9});
  pool.add("middle", {.decoding = 5});
  pool.add("best", {.decoding = 1});
  const auto policy = make_policy("least_connections", {{"choices", 2.0}});
  const auto counts = pool.shares(*policy, 3'000);
  EXPECT_EQ(counts.at("worst"), 0) << "it is never drawn twice";
  EXPECT_NEAR(counts.at("middle"), 1'000, 150);
  EXPECT_NEAR(counts.at("best"), 2'000, 150);
}

TEST(LeastConnections, ASaturatedReplicaIsTakenOnlyIfAllAre) {
  PoolBuilder pool;
  pool.add("full", {.kv = 0.95, .decoding = 1});
  pool.add("busy", {.kv = 0.2, .decoding = 9});
  for (const double choices : {0.0, 2.0}) {
    const auto policy = make_policy("least_connections", {{"choices", choices}});
    EXPECT_EQ(pool.pick(*policy), "busy");
    pool.report(pool.index("busy"), 0.99, 0.0);
    EXPECT_EQ(pool.pick(*policy), "full");
    EXPECT_EQ(pool.reason, Reason::kAllSaturated);
    pool.report(pool.index("busy"), 0.2, 0.0);
  }
}

class LeastResponseTime : public testing::Test {
 protected:
  void sample(ReplicaIndex replica, Duration ttft) {
    policy->feedback({.event = Feedback::Event::kFirstToken,
                      .replica = replica,
                      .work_ahead = 100,
                      .ttft = ttft,
                      .now = pool.now});
  }
  PoolBuilder pool;
  std::unique_ptr<Pipeline> policy = make_policy("least_response_time");
};

TEST_F(LeastResponseTime, SmallestPeakTimesInFlightAndOne) {
  pool.add("slow", {.decoding = 0});
  pool.add("fast", {.decoding = 2});
  sample(0, milliseconds(400));
  sample(1, milliseconds(100));
  EXPECT_EQ(pool.pick(*policy), "fast") << "100 * 3 < 400 * 1";
  pool.book(1, 10);
  pool.book(1, 10);
  EXPECT_EQ(pool.pick(*policy), "slow") << "100 * 5 > 400";
}

TEST_F(LeastResponseTime, WithoutSamplesByInFlight) {
  pool.add("a", {.decoding = 3});
  pool.add("b", {.decoding = 1});
  pool.add("c", {.weight = 4, .decoding = 2});
  EXPECT_EQ(pool.pick(*policy), "c");
}

TEST_F(LeastResponseTime, APeakCountsAtOnceAndFadesWithTheDecay) {
  pool.add("a");
  pool.add("b");
  for (int i = 0; i < 50; ++i) {
    pool.now += milliseconds(10);
    sample(0, milliseconds(100));
    sample(1, milliseconds(110));
  }
  EXPECT_EQ(pool.pick(*policy), "a");
  sample(0, milliseconds(2'000));
  EXPECT_EQ(pool.pick(*policy), "b") << "one bad answer is enough";
  // b goes on being sampled; a's peak fades to b's after 10 s * ln(2000/110) = 29 s.
  for (int i = 0; i < 270; ++i) {
    pool.now += milliseconds(100);
    sample(1, milliseconds(110));
  }
  EXPECT_EQ(pool.pick(*policy), "b") << "after 27 s";
  for (int i = 0; i < 40; ++i) {
    pool.now += milliseconds(100);
    sample(1, milliseconds(110));
  }
  EXPECT_EQ(pool.pick(*policy), "a") << "after 31 s it is worth another try";
}

TEST_F(LeastResponseTime, LongSilenceLosesNoOrder) {
  pool.add("slow");
  pool.add("fast");
  sample(0, milliseconds(400));
  sample(1, milliseconds(100));
  pool.now += std::chrono::hours(1'000);
  EXPECT_EQ(pool.pick(*policy), "fast");
  sample(1, milliseconds(100));
  pool.now += std::chrono::hours(1'000);
  sample(0, milliseconds(50));
  sample(1, milliseconds(100));
  EXPECT_EQ(pool.pick(*policy), "slow");
}

TEST_F(LeastResponseTime, OnlyFirstTokensOfStreamsAreSamples) {
  pool.add("a");
  pool.add("b", {.decoding = 1});
  policy->feedback(
      {.event = Feedback::Event::kFinished, .replica = 0, .ttft = seconds(100), .now = pool.now});
  EXPECT_EQ(pool.pick(*policy), "a");
}

}  // namespace
}  // namespace pointsman
