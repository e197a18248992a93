// least_kv, global_least_kv, weighted.

#include <string>

#include <gtest/gtest.h>

#include "support/policy.h"
#include "support/pool_builder.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::make_policy;
using testing_support::PoolBuilder;

TEST(LeastKv, TheLowerReadingOfTwo) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.5});
  pool.add("b", {.kv = 0.3, .decoding = 10});
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "b");
}

TEST(LeastKv, TwoDistinctReplicasAreCompared) {
  PoolBuilder pool;
  pool.add("lowest", {.kv = 0.1});
  pool.add("middle", {.kv = 0.4});
  pool.add("highest", {.kv = 0.7});
  const auto policy = make_policy("least_kv");
  const auto counts = pool.shares(*policy, 3'000);
  EXPECT_EQ(counts.at("highest"), 0);
  EXPECT_NEAR(counts.at("lowest"), 2'000, 150);
}

TEST(LeastKv, WhatWasSentSinceTheReportCounts) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.30, .capacity = 10'000, .sent_since = 2, .tokens = 1'000});
  pool.add("b", {.kv = 0.40, .capacity = 10'000});
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "b") << "0.50 against 0.40";
  EXPECT_EQ(pool.pick(*make_policy("least_kv", {{"live", false}})), "a") << "0.30 against 0.40";
}

TEST(LeastKv, WithinTheToleranceTheShorterLiveQueue) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.300, .waiting = 3});
  pool.add("b", {.kv = 0.319, .waiting = 2});
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "b");
  pool.report(1, 0.321, 2.0);
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "a");
}

TEST(LeastKv, ThenFewerChargedTokensThenFewerInFlight) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.3, .waiting = 0, .decoding = 1, .tokens = 900});
  pool.add("b", {.kv = 0.3, .waiting = 0, .decoding = 3, .tokens = 100});
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "b") << "300 tokens against 900";
  PoolBuilder level;
  level.add("a", {.kv = 0.3, .waiting = 0, .decoding = 3, .tokens = 100});
  level.add("b", {.kv = 0.3, .waiting = 0, .decoding = 1, .tokens = 300});
  EXPECT_EQ(level.pick(*make_policy("least_kv")), "b") << "1 in flight against 3";
}

// Case D25, for every policy that reads the queue or the cache.
class StaleReadings : public testing::TestWithParam<const char*> {};

TEST_P(StaleReadings, D25_AFreshReadingBeatsAStaleOrAbsentOne) {
  for (const bool kv : {false, true}) {
    for (const double waiting : {0.0, 3.0, 12.0}) {
      PoolBuilder pool;
      testing_support::ReplicaState fresh{.waiting = waiting, .age = milliseconds(400)};
      testing_support::ReplicaState stale{.waiting = 0, .age = seconds(9)};
      if (kv) {
        fresh.kv = 0.6;
        stale.kv = 0.0;
      } else if (std::string(GetParam()).find("kv") != std::string::npos) {
        continue;  // without KV use there is no reading of theirs to be fresh
      }
      pool.add("a", fresh);
      pool.add("b", stale);
      pool.add("c");
      const auto policy = make_policy(GetParam());
      const auto counts = pool.shares(*policy, 300);
      // Two drawn by chance leave a out one time in three.
      const bool all = std::string(GetParam()) != "least_kv";
      if (all) {
        EXPECT_EQ(counts.at("a"), 300) << kv << " " << waiting;
      } else {
        EXPECT_NEAR(counts.at("a"), 200, 40) << kv << " " << waiting;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, StaleReadings,
                         testing::Values("least_kv", "global_least_kv", "weighted", "least_work"),
                         [](const auto& one) { return std::string(one.param); });

TEST(LeastKv, D25_IfAllAreStaleByQueueAndInFlightAlone) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.0, .waiting = 0, .age = seconds(9), .decoding = 5});
  pool.add("b", {.kv = 0.9, .waiting = 9, .age = seconds(9), .decoding = 1});
  for (const char* preset : {"least_kv", "global_least_kv", "weighted"}) {
    EXPECT_EQ(pool.pick(*make_policy(preset)), "b") << preset;
  }
}

// However much was charged: without a reading, live queue and requests in flight are all there is.
TEST(LeastKv, D25_WithoutReadingsChargedTokensAreNotCompared) {
  for (const char* preset : {"least_kv", "global_least_kv"}) {
    PoolBuilder pool;
    pool.add("a", {.decoding = 5, .tokens = 10});
    pool.add("b", {.decoding = 1, .tokens = 9'000});
    EXPECT_EQ(pool.pick(*make_policy(preset)), "b") << preset << ": 1 in flight against 5";
    PoolBuilder queues;
    queues.add("a", {.queued = 2, .tokens = 10});
    queues.add("b", {.decoding = 5, .queued = 1, .tokens = 900});
    EXPECT_EQ(queues.pick(*make_policy(preset)), "b") << preset << ": 1 queued against 2";
  }
}

TEST(LeastKv, ASilentReplicaBeatsASaturatedOne) {
  PoolBuilder pool;
  pool.add("full", {.kv = 0.95});
  pool.add("silent");
  EXPECT_EQ(pool.pick(*make_policy("least_kv")), "silent");
}

// Case D32: a limit is used before all exceed it.
TEST(LeastKv, D32_TheOneBelowTheLimitAndTheLeastUsedOfAllBeyondIt) {
  for (const char* preset : {"least_kv", "global_least_kv"}) {
    PoolBuilder pool;
    pool.add("a", {.kv = 0.95});
    pool.add("b", {.kv = 0.97});
    pool.add("c", {.kv = 0.93});
    pool.add("d", {.kv = 0.4});
    const auto policy = make_policy(preset);
    for (const auto& [name, count] : pool.shares(*policy, 200)) {
      EXPECT_EQ(count, name == "d" ? 200 : 0) << preset << " " << name;
    }
    pool.report(pool.index("d"), 0.94, {});
    for (const auto& [name, count] : pool.shares(*policy, 200)) {
      EXPECT_EQ(count, name == "c" ? 200 : 0) << preset << " " << name;
    }
    EXPECT_EQ(pool.reason, Reason::kAllSaturated) << "counted, and no error";
  }
}

TEST(LeastKv, D32_SaturatedByQueueOrByPrefillIsNoDifferent) {
  PoolBuilder pool;
  pool.add("queue", {.kv = 0.1, .waiting = 16});
  pool.add("prefill", {.kv = 0.1, .waiting = 0, .queued = 1, .tokens = 40'000});
  pool.add("free", {.kv = 0.8, .waiting = 15});
  const auto policy = make_policy("least_kv");
  EXPECT_EQ(pool.shares(*policy, 100).at("free"), 100);
}

TEST(LeastKv, WeightsGiveChancesAndDoNotTouchReadings) {
  PoolBuilder pool;
  pool.add("heavy", {.weight = 100, .kv = 0.6});
  pool.add("light", {.weight = 1, .kv = 0.2});
  const auto policy = make_policy("least_kv");
  EXPECT_EQ(pool.shares(*policy, 100).at("light"), 100) << "both are drawn, the reading decides";
  PoolBuilder many;
  many.add("heavy", {.weight = 8, .kv = 0.2});
  for (int i = 0; i < 8; ++i) many.add("light" + std::to_string(i), {.weight = 1, .kv = 0.6});
  // Drawn first with 8/16, or second with 1/2 * 8/15: 1/2 + 4/15.
  EXPECT_NEAR(many.shares(*make_policy("least_kv"), 3'000).at("heavy"), 2'300, 150);
}

TEST(GlobalLeastKv, TheLowestOfAll) {
  PoolBuilder pool;
  pool.add_uniform(20, {.kv = 0.5});
  pool.add("lowest", {.kv = 0.49});
  const auto policy = make_policy("global_least_kv");
  EXPECT_EQ(pool.shares(*policy, 100).at("lowest"), 100);
}

TEST(Weighted, SumsHitShareCacheRoomAndQueueRoom) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 160;
  pool.add("holder", {.kv = 0.6, .waiting = 4, .matched = 5});
  pool.add("other", {.kv = 0.2, .waiting = 0});
  // 2 * 0.5 + 0.4 + 0.75 against 0.8 + 1.
  EXPECT_EQ(pool.pick(*make_policy("weighted")), "holder");
  // 0.5 * 0.5 + 0.4 + 0.75 against 0.8 + 1.
  EXPECT_EQ(pool.pick(*make_policy("weighted", {{"prefix_hit_weight", 0.5}})), "other");
}

TEST(Weighted, QueueDepthIsOverAStatedDepthAndNotOverTheSet) {
  PoolBuilder pool;
  pool.features.prompt_tokens = 160;
  pool.limits.queue = 1'000;
  pool.add("a", {.kv = 0.30, .waiting = 0});
  pool.add("b", {.kv = 0.25, .waiting = 1});
  // 0.70 + 1 against 0.75 + 15/16, whether or not a third replica has a long queue.
  const auto policy = make_policy("weighted");
  EXPECT_EQ(pool.pick(*policy), "a");
  pool.add("outlier", {.kv = 0.9, .waiting = 900});
  EXPECT_EQ(pool.pick(*policy), "a");
  EXPECT_EQ(pool.pick(*make_policy("weighted", {{"depth", 100.0}})), "b");
}

}  // namespace
}  // namespace pointsman
