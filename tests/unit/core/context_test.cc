#include "core/context.h"

#include <gtest/gtest.h>

#include "support/pool_builder.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_support::PoolBuilder;

TEST(Context, TheWholePromptIsNeverCached) {
  PoolBuilder pool;
  pool.add("all", {.matched = 4});
  pool.add("half", {.matched = 2});
  pool.add("none");
  pool.features.block_tokens = 16;
  pool.features.prompt_tokens = 64;
  EXPECT_EQ(pool.context().cached_tokens(0), 48U) << "the last block is always computed";
  EXPECT_EQ(pool.context().uncached_tokens(0), 16U);
  EXPECT_EQ(pool.context().cached_tokens(1), 32U);
  EXPECT_EQ(pool.context().cached_tokens(2), 0U);
  pool.features.prompt_tokens = 65;
  EXPECT_EQ(pool.context().cached_tokens(0), 64U);
  pool.features.prompt_tokens = 0;
  EXPECT_EQ(pool.context().cached_tokens(0), 0U);
  EXPECT_EQ(pool.context().uncached_tokens(0), 0U);
}

TEST(Context, LiveKvAddsThePromptsSentSinceTheReport) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.40, .capacity = 10'000, .queued = 3, .sent_since = 2, .tokens = 500});
  EXPECT_NEAR(live_kv(pool.context(), 0).usage, 0.40 + 1'000.0 / 10'000, 1e-6);
  EXPECT_NEAR(reported_kv(pool.context(), 0).usage, 0.40, 1e-6);
}

TEST(Context, LiveKvWithoutACapacityIsTheBareReport) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.40, .sent_since = 2, .tokens = 500});
  EXPECT_NEAR(live_kv(pool.context(), 0).usage, 0.40, 1e-6);
}

TEST(Context, LiveKvWithoutAReportedCapacityTakesTheConfiguredOne) {
  PoolBuilder pool;
  pool.add("silent of it", {.kv = 0.40, .configured = 10'000, .sent_since = 2, .tokens = 500});
  pool.add("reports it",
           {.kv = 0.40, .capacity = 5'000, .configured = 10'000, .sent_since = 2, .tokens = 500});
  EXPECT_NEAR(live_kv(pool.context(), 0).usage, 0.40 + 1'000.0 / 10'000, 1e-6);
  EXPECT_NEAR(live_kv(pool.context(), 1).usage, 0.40 + 1'000.0 / 5'000, 1e-6);
}

// Case D25: a stale reading is not believed, and an absent one is unknown, not zero.
TEST(Context, D25_StaleAndAbsentReadingsAreUnknown) {
  PoolBuilder pool;
  pool.add("fresh", {.kv = 0.5, .waiting = 3, .age = milliseconds(400)});
  pool.add("stale", {.kv = 0.0, .waiting = 0, .age = seconds(9)});
  pool.add("absent");
  EXPECT_TRUE(live_kv(pool.context(), 0).known);
  EXPECT_FALSE(live_kv(pool.context(), 1).known);
  EXPECT_FALSE(live_kv(pool.context(), 2).known);
  EXPECT_EQ(live_queue(pool.context(), 0), 3);
  EXPECT_EQ(live_queue(pool.context(), 1), 0) << "own requests only, of which there are none";
}

TEST(Context, AReadingOfExactlyTheLimitsAgeIsStillFresh) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0.5, .age = PoolBuilder::kMaxAge});
  pool.add("b", {.kv = 0.5, .age = PoolBuilder::kMaxAge + milliseconds(1)});
  EXPECT_TRUE(live_kv(pool.context(), 0).known);
  EXPECT_FALSE(live_kv(pool.context(), 1).known);
}

TEST(Context, LiveQueueIsTheLargerOfReportAndOwnCount) {
  PoolBuilder pool;
  // Those sent before the report are in it, or past it; those sent since are added.
  pool.add("report", {.waiting = 7, .queued = 2, .sent_since = 3});
  pool.add("own", {.waiting = 0, .queued = 6, .sent_since = 1});
  pool.add("silent", {.decoding = 5, .queued = 4});
  EXPECT_EQ(live_queue(pool.context(), 0), 10);
  EXPECT_EQ(live_queue(pool.context(), 1), 7);
  EXPECT_EQ(live_queue(pool.context(), 2), 4);
}

// Case D26: the engine's report lags by seconds, the router's own count does not.
TEST(Context, D26_TheQueueIsAtLeastWhatTheRouterHasWaitingThere) {
  PoolBuilder pool;
  pool.add("a", {.kv = 0, .waiting = 0});
  for (int sent = 1; sent <= 18; ++sent) {
    pool.book(0, 100);
    if (sent % 6 == 0) pool.report(0, 0.0, 0.0);
    EXPECT_GE(live_queue(pool.context(), 0), sent);
  }
}

// Case D27: what the engine reports is in force; the router's own sums only come on top of it.
TEST(Context, D27_OwnEstimatesNeverReplaceWhatTheEngineReports) {
  PoolBuilder pool;
  constexpr std::uint64_t kTokensPerBlock = 16;
  pool.add("w1", {.kv = 161'000.0 / 162'938,
                  .capacity = 162'938 * kTokensPerBlock,
                  .queued = 3,
                  .tokens = 2'100 * kTokensPerBlock});
  pool.limits.kv = 0.6;
  pool.limits.prefill_tokens = 1e9;
  EXPECT_TRUE(saturated(pool.context(), 0));
  EXPECT_NEAR(live_kv(pool.context(), 0).usage, 161'000.0 / 162'938, 1e-6);
}

TEST(Context, SaturatedByEachOfTheThreeLimitsAndNotBelowThem) {
  PoolBuilder pool;
  pool.add("kv", {.kv = 0.9});
  pool.add("kv below", {.kv = 0.89});
  pool.add("queue", {.waiting = 12, .sent_since = 4});
  pool.add("queue below", {.waiting = 12, .sent_since = 3});
  pool.add("prefill", {.queued = 1, .tokens = 32'768});
  pool.add("prefill below", {.queued = 1, .tokens = 32'767});
  pool.add("decode only", {.decoding = 200, .tokens = 100'000});
  const std::vector<bool> expected = {true, false, true, false, true, false, false};
  for (ReplicaIndex i = 0; i < pool.size(); ++i) {
    EXPECT_EQ(saturated(pool.context(), i), expected[i]) << pool.name(i);
  }
}

TEST(Context, OutstandingPrefillOfOtherRoutersSaturatesToo) {
  PoolBuilder pool;
  pool.add("a", {.queued = 1, .tokens = 10'000});
  pool.hear_peer(0, {0, 1, 22'767});
  EXPECT_FALSE(saturated(pool.context(), 0));
  pool.hear_peer(1, {0, 1, 1});
  EXPECT_TRUE(saturated(pool.context(), 0));
}

TEST(Context, ALongPromptRaisesThePrefillLimitToItself) {
  PoolBuilder pool;
  pool.add("a", {.queued = 1, .tokens = 40'000});
  EXPECT_TRUE(saturated(pool.context(), 0));
  pool.features.prompt_tokens = 50'000;
  EXPECT_FALSE(saturated(pool.context(), 0));
  pool.features.prompt_tokens = 40'000;
  EXPECT_TRUE(saturated(pool.context(), 0));
}

}  // namespace
}  // namespace pointsman
