#include "core/router.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

// Takes the candidate with the longest match, else the first; keeps what it was told.
struct Longest final : Picker {
  explicit Longest(bool blocks) : wants_blocks(blocks) {}
  [[nodiscard]] Needs needs() const override { return {.blocks = wants_blocks, .session = false}; }
  std::size_t pick(Context& context, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    seen.assign(candidates.begin(), candidates.end());
    shared_blocks = context.shared_blocks;
    holders = context.holders.size();
    order[0] = *std::max_element(candidates.begin(), candidates.end(), [&](auto a, auto b) {
      return context.matched_blocks[a] < context.matched_blocks[b];
    });
    return 1;
  }
  void picked(const Context&, ReplicaIndex) override { ++picks; }
  void feedback(const Feedback& one) override { feedbacks.push_back(one); }
  void forget(ReplicaIndex replica) override { forgotten = replica; }

  bool wants_blocks;
  std::vector<ReplicaIndex> seen;
  std::vector<Feedback> feedbacks;
  std::uint32_t shared_blocks = 0;
  std::size_t holders = 0;
  int picks = 0;
  ReplicaIndex forgotten = kNoReplica;
};

class RouterTest : public testing::Test {
 protected:
  // A router over the pools of `fleet`.
  Router& make(bool blocks = false) {
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    pickers_.clear();
    for (std::size_t i = 0; i < std::max<std::size_t>(fleet_.pools.size(), 1); ++i) {
      auto picker = std::make_unique<Longest>(blocks);
      pickers_.push_back(picker.get());
      pipelines.push_back(std::make_unique<Pipeline>(std::vector<std::unique_ptr<Filter>>{},
                                                     nullptr, std::vector<Pipeline::Weighted>{},
                                                     nullptr, std::move(picker)));
    }
    router_ = std::make_unique<Router>(options_, std::move(pipelines));
    return *router_;
  }

  void add_pool(PoolPurpose purpose, int replicas) {
    PoolView pool;
    pool.purpose = purpose;
    for (int i = 0; i < replicas; ++i) {
      const auto index = static_cast<ReplicaIndex>(fleet_.replicas.size());
      fleet_.replicas.push_back(
          {index + 1, 1.0, static_cast<PoolIndex>(fleet_.pools.size()), true});
      pool.usable.push_back(index);
    }
    fleet_.pools.push_back(std::move(pool));
  }

  Decision decide(std::span<const ReplicaIndex> excluded = {}) {
    return router_->decide(features_, fleet_, excluded, now_);
  }
  void finish(Decision& decision, Outcome outcome = {}) {
    router_->finished(std::move(decision.charge), outcome, now_);
  }
  // Decides, ends it at once, and returns the replica; kNoReplica where it was rejected.
  ReplicaIndex route(std::span<const ReplicaIndex> excluded = {}) {
    Decision decision = decide(excluded);
    if (decision.verdict != Decision::Verdict::kSend) return kNoReplica;
    const ReplicaIndex replica = decision.order[0];
    finish(decision);
    return replica;
  }

  Router::Options options_;
  FleetView fleet_;
  Features features_;
  TimePoint now_ = kStart;
  std::vector<Longest*> pickers_;
  std::unique_ptr<Router> router_;
};

TEST(PurposeOf, LongPromptComesBeforeLongGenerationBeforeGeneral) {
  const SegregationLimits limits;
  Features features;
  EXPECT_EQ(purpose_of(features, limits), PoolPurpose::kGeneral) << "no limit given: general";
  features.max_output_tokens = 4'000;
  features.prompt_tokens = 32'000;
  EXPECT_EQ(purpose_of(features, limits), PoolPurpose::kGeneral);
  features.max_output_tokens = 4'001;
  EXPECT_EQ(purpose_of(features, limits), PoolPurpose::kLongGeneration);
  features.prompt_tokens = 32'001;
  EXPECT_EQ(purpose_of(features, limits), PoolPurpose::kLongContext);
}

TEST_F(RouterTest, BooksInTheSameStepAsItChooses) {
  add_pool(PoolPurpose::kGeneral, 1);
  make();
  features_.prompt_tokens = 100;
  features_.stream = true;
  Decision decision = decide();
  ASSERT_EQ(decision.verdict, Decision::Verdict::kSend);
  EXPECT_TRUE(decision.charge.held());
  EXPECT_EQ(router_->ledger()[0].in_flight, 1);
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 100);
  EXPECT_EQ(pickers_[0]->picks, 1);
  router_->first_token(decision.charge, now_ + seconds(1));
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 0);
  finish(decision);
  EXPECT_EQ(router_->ledger()[0].in_flight, 0);
}

TEST_F(RouterTest, NoUsableReplicaIsAReject) {
  fleet_.pools.emplace_back();
  make();
  EXPECT_EQ(decide().verdict, Decision::Verdict::kReject);
  fleet_.pools.clear();
  EXPECT_EQ(decide().verdict, Decision::Verdict::kReject);
  EXPECT_EQ(router_->counters().rejected, 2U);
}

TEST_F(RouterTest, FailedReplicasAreExcluded) {
  add_pool(PoolPurpose::kGeneral, 3);
  make();
  const std::vector<ReplicaIndex> two = {0, 2};
  EXPECT_EQ(route(two), 1U);
  const std::vector<ReplicaIndex> all = {0, 1, 2};
  EXPECT_EQ(route(all), kNoReplica);
}

TEST_F(RouterTest, APoolIsChosenByPurpose) {
  add_pool(PoolPurpose::kGeneral, 2);
  add_pool(PoolPurpose::kLongContext, 1);
  add_pool(PoolPurpose::kLongGeneration, 1);
  make();
  EXPECT_EQ(route(), 0U);
  features_.prompt_tokens = 40'000;
  EXPECT_EQ(route(), 2U);
  features_.prompt_tokens = 10;
  features_.max_output_tokens = 16'000;
  EXPECT_EQ(route(), 3U);
  EXPECT_EQ(router_->counters().pool_fallbacks, 0U);
}

TEST_F(RouterTest, APoolWithoutAUsableReplicaFallsBackToGeneralAndIsCounted) {
  add_pool(PoolPurpose::kGeneral, 1);
  add_pool(PoolPurpose::kLongContext, 1);
  fleet_.pools[1].usable.clear();
  make();
  features_.prompt_tokens = 40'000;
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 0U);
  EXPECT_TRUE(decision.pool_fallback);
  EXPECT_EQ(router_->counters().pool_fallbacks, 1U);
  finish(decision);
}

TEST_F(RouterTest, WithoutASpecialPoolNothingIsAFallback) {
  add_pool(PoolPurpose::kGeneral, 1);
  make();
  features_.prompt_tokens = 40'000;
  EXPECT_EQ(route(), 0U);
  EXPECT_EQ(router_->counters().pool_fallbacks, 0U);
}

TEST_F(RouterTest, AGeneralRequestNeverGoesToASpecialPool) {
  add_pool(PoolPurpose::kGeneral, 1);
  add_pool(PoolPurpose::kLongContext, 1);
  fleet_.pools[0].usable.clear();
  make();
  EXPECT_EQ(route(), kNoReplica);
}

TEST_F(RouterTest, OnlyReplicasThatServeTheModelAreCandidates) {
  add_pool(PoolPurpose::kGeneral, 3);
  fleet_.pools[0].by_model = {{"m1", {0, 2}}, {"m2", {1, 2}}};
  fleet_.pools[0].any_model = {2};
  make();
  features_.model = "m2";
  (void)route();
  EXPECT_EQ(pickers_[0]->seen, (std::vector<ReplicaIndex>{1, 2}));
  features_.model = "nobody names it";
  EXPECT_EQ(route(), 2U);
  features_.model = "";
  (void)route();
  EXPECT_EQ(pickers_[0]->seen, (std::vector<ReplicaIndex>{0, 1, 2}));
}

TEST_F(RouterTest, AResponseGoesBackToTheReplicaThatMadeIt) {
  add_pool(PoolPurpose::kGeneral, 3);
  make();
  router_->learn_response(77, 2, now_);
  features_.response_id = 77;
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 2U);
  EXPECT_EQ(decision.reason, Reason::kPinned);
  finish(decision);
  features_.response_id = 78;
  EXPECT_EQ(route(), 0U) << "an id nobody knows";
}

TEST_F(RouterTest, APinHoldsWhileItsReplicaIsUsableAndNoLonger) {
  add_pool(PoolPurpose::kGeneral, 3);
  make();
  router_->learn_response(77, 2, now_);
  features_.response_id = 77;
  const std::vector<ReplicaIndex> failed = {2};
  Decision decision = decide(failed);
  EXPECT_EQ(decision.verdict, Decision::Verdict::kReject);
  EXPECT_EQ(decision.reason, Reason::kPinned) << "its conversation lives nowhere else";
  fleet_.replicas[2].usable = false;
  std::erase(fleet_.pools[0].usable, 2U);
  EXPECT_EQ(route(), 0U);
  fleet_.replicas[2].usable = true;
  EXPECT_EQ(route(), 2U);
  router_->forget(2);
  EXPECT_EQ(route(), 0U) << "a replica that restarted has lost its responses";
}

TEST_F(RouterTest, APinReachesIntoAnyPool) {
  add_pool(PoolPurpose::kGeneral, 1);
  add_pool(PoolPurpose::kLongContext, 1);
  make();
  router_->learn_response(77, 1, now_);
  features_.response_id = 77;
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 1U);
  EXPECT_EQ(decision.pool, 1U);
  finish(decision);
  EXPECT_EQ(pickers_[1]->feedbacks.size(), 1U);
}

TEST_F(RouterTest, WhatWasSentIsFoundAgainAndOnlyTheRestIsCharged) {
  add_pool(PoolPurpose::kGeneral, 3);
  make(true);
  const std::vector<BlockHash> chain = {11, 12, 13, 14};
  features_.blocks = chain;
  features_.block_tokens = 16;
  features_.prompt_tokens = 70;
  features_.session_key = 5;
  const std::vector<ReplicaIndex> not_these = {0};
  EXPECT_EQ(route(not_these), 1U) << "nobody holds it: the first";
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 1U);
  EXPECT_EQ(decision.reason, Reason::kPrefix);
  EXPECT_EQ(decision.predicted_cached_tokens, 64U);
  EXPECT_EQ(pickers_[0]->holders, 1U);
  EXPECT_EQ(router_->ledger()[1].prefill_tokens, 6);
  EXPECT_EQ(router_->ledger()[1].prompt_tokens, 70);
  finish(decision, {.cached_tokens = 48});
  const Router::Counters::Cached& cached = router_->counters().cached[0];
  EXPECT_EQ(cached.answers, 1U);
  EXPECT_EQ(cached.predicted_tokens, 64U);
  EXPECT_EQ(cached.actual_tokens, 48U);
  EXPECT_EQ(cached.missed_by_tokens, 16U);
  EXPECT_EQ(cached.prompt_tokens, 70U);
}

TEST_F(RouterTest, AMatchOfOneRequestIsGoneAtTheNext) {
  add_pool(PoolPurpose::kGeneral, 3);
  make(true);
  features_.prompt_tokens = 70;
  const std::vector<BlockHash> chain = {11, 12, 13, 14};
  features_.blocks = chain;
  const std::vector<ReplicaIndex> not_these = {0, 1};
  EXPECT_EQ(route(not_these), 2U);
  EXPECT_EQ(route(), 2U);
  const std::vector<BlockHash> other = {21, 22};
  features_.blocks = other;
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 0U);
  EXPECT_EQ(decision.predicted_cached_tokens, 0U);
  finish(decision);
  features_.blocks = {};
  EXPECT_EQ(route(), 0U) << "no blocks: no match";
}

// Requests for the same long prompt, of which replica 1 was sent the first.
class RouterWithAPrefix : public RouterTest {
 protected:
  RouterWithAPrefix() {
    add_pool(PoolPurpose::kGeneral, 3);
    for (BlockHash i = 0; i < 64; ++i) chain_.push_back(100 + i);
    features_.blocks = chain_;
    features_.prompt_tokens = 1'024;
    make(true);
    EXPECT_EQ(route(not_first_), 1U);
  }

  // Sends the prompt to replica 1, which finds so many of its tokens cached; what was predicted.
  std::uint32_t send(std::optional<std::uint32_t> cached) {
    const std::vector<ReplicaIndex> others = {0, 2};
    Decision decision = decide(others);
    EXPECT_EQ(decision.order[0], 1U);
    finish(decision, {.cached_tokens = cached});
    return decision.predicted_cached_tokens;
  }

  std::vector<BlockHash> chain_;
  const std::vector<ReplicaIndex> not_first_ = {0};
};

TEST_F(RouterWithAPrefix, AReplicaThatNeverHitsIsChosenAsIfThereWereNoIndex) {
  for (int i = 0; i < 20; ++i) send(0);
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 0U) << "nobody is believed to hold it";
  EXPECT_EQ(decision.predicted_cached_tokens, 0U);
  EXPECT_EQ(pickers_[0]->holders, 0U);
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 1'024);
  finish(decision);
  EXPECT_EQ(send(0), 0U);
}

TEST_F(RouterWithAPrefix, WhatIsNotBelievedIsStillComparedAndCanBeBelievedAgain) {
  for (int i = 0; i < 20; ++i) send(0);
  for (int i = 0; i < 20; ++i) send(1'008);
  EXPECT_EQ(send(1'008), 1'008U);
  EXPECT_EQ(route(), 1U);
}

TEST_F(RouterWithAPrefix, HalfHitsAreHalfBelieved) {
  for (int i = 0; i < 100; ++i) send(504);
  EXPECT_NEAR(send(504), 504, 16) << "in whole blocks";
  EXPECT_EQ(route(), 1U) << "more than nothing";
}

TEST_F(RouterWithAPrefix, AnswersWithoutUsageChangeNothing) {
  for (int i = 0; i < 100; ++i) send(std::nullopt);
  EXPECT_EQ(send(std::nullopt), 1'008U);
}

TEST_F(RouterWithAPrefix, TheLastBlockOfAWholeBlockPromptIsNoError) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(send(1'008), 1'008U);
  EXPECT_EQ(router_->prefix_trust().error(1).over_tokens, 0U);
  EXPECT_EQ(router_->prefix_trust().error(1).buckets[0], 10U);
}

TEST_F(RouterWithAPrefix, AnEngineThatSaysItKeepsNoPrefixesIsNotBelieved) {
  Signals signals;
  signals.observed_at = now_;
  signals.prefix_caching = false;
  signals.window = router_->report_opened(1);
  router_->report_applied(1, signals);
  EXPECT_EQ(send(std::nullopt), 0U);
  signals.prefix_caching.reset();
  signals.window = router_->report_opened(1);
  router_->report_applied(1, signals);
  EXPECT_EQ(send(std::nullopt), 0U) << "a report that does not say leaves it at that";
  router_->forget(1);
  EXPECT_EQ(send(std::nullopt), 0U) << "restarted: its cache is gone";
  EXPECT_EQ(send(std::nullopt), 1'008U);
}

TEST_F(RouterWithAPrefix, APromptThatWasEstimatedTooLongIsNoError) {
  const std::vector<ReplicaIndex> others = {0, 2};
  for (int i = 0; i < 50; ++i) {
    Decision decision = decide(others);
    finish(decision, {.prompt_tokens = 512, .cached_tokens = 496});
  }
  EXPECT_EQ(send(1'008), 1'008U);
  const Router::Counters::Cached& cached = router_->counters().cached[0];
  EXPECT_EQ(cached.predicted_tokens, 50 * 504 + 1'008U) << "in the engine's tokens";
  EXPECT_EQ(cached.missed_by_tokens, 50 * 8U);
}

TEST_F(RouterWithAPrefix, TheIndexKeepsLessOfAReplicaThatKeepsMissing) {
  std::vector<BlockHash> other(4'000);
  for (BlockHash i = 0; i < other.size(); ++i) other[i] = 10'000 + i;
  features_.blocks = other;
  features_.prompt_tokens = 64'000;
  const std::vector<ReplicaIndex> others = {0, 2};
  route(others);
  Signals signals;
  signals.observed_at = now_;
  signals.kv_capacity_tokens = 160'000;
  signals.window = router_->report_opened(1);
  router_->report_applied(1, signals);
  EXPECT_EQ(router_->index().blocks(1), 4'064U);
  features_.blocks = chain_;
  features_.prompt_tokens = 1'024;
  for (int i = 0; i < 30; ++i) send(0);
  EXPECT_LT(router_->index().blocks(1), 1'500U);
  EXPECT_GE(router_->index().blocks(1), 625U) << "a sixteenth of what it reports";
  EXPECT_EQ(router_->index().blocks(1), router_->prefix_trust().capacity(1));
}

TEST_F(RouterWithAPrefix, ASecondCopyIsCounted) {
  EXPECT_EQ(route(), 1U);
  const auto& replications = router_->counters().replications;
  EXPECT_EQ(replications[0] + replications[1], 0U) << "it went to who holds it";
  // The first prompt was nowhere before, and this one's holder is left out after it failed.
  const std::vector<ReplicaIndex> not_second = {1};
  EXPECT_EQ(route(not_second), 0U);
  EXPECT_EQ(replications[0] + replications[1], 0U);
  EXPECT_EQ(route(), 0U);
}

class RouterWithEvents : public RouterTest {
 protected:
  RouterWithEvents() {
    add_pool(PoolPurpose::kGeneral, 3);
    features_.prompt_tokens = 70;
    features_.blocks = chain_;
    features_.exact_blocks = 4;
  }

  const std::vector<BlockHash> chain_ = {11, 12, 13, 14};
};

TEST_F(RouterWithEvents, TheEnginesWordBeatsWhatWasSent) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  const std::vector<ReplicaIndex> not_these = {0};
  EXPECT_EQ(route(not_these), 1U) << "believed to be cached on 1 from now on";
  caches.set_trust(1, Trust::kTrusted);
  caches.set_trust(2, Trust::kTrusted);
  caches.store({.replica = 2}, std::nullopt, std::span(chain_).first(3));
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 2U) << "1 says that it holds nothing";
  EXPECT_EQ(decision.predicted_cached_tokens, 48U);
  EXPECT_EQ(pickers_[0]->holders, 1U);
  finish(decision, {.cached_tokens = 48});
  EXPECT_EQ(router_->counters().cached[0].answers, 0U);
  const Router::Counters::Cached& cached =
      router_->counters().cached[static_cast<std::size_t>(Knowledge::kEvents)];
  EXPECT_EQ(cached.answers, 1U);
  EXPECT_EQ(cached.predicted_tokens, 48U);
  EXPECT_EQ(cached.actual_tokens, 48U);
  EXPECT_EQ(cached.missed_by_tokens, 0U);
}

// Each prompt of which two blocks were computed must be followed by an event, and was not.
TEST_F(RouterWithEvents, PromptsThatWereComputedWithoutAnEventAreCounted) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  const std::vector<ReplicaIndex> not_these = {1, 2};
  Signals report;
  report.block_tokens = 16;
  report.window = router_->report_opened(0);
  report.observed_at = now_;
  router_->report_applied(0, report);
  const auto serve = [&](Outcome outcome) {
    Decision decision = decide(not_these);
    finish(decision, outcome);
    return router_->computed_prompts(0);
  };
  EXPECT_EQ(serve({.cached_tokens = 0}), 0U) << "it tells nothing at all";
  caches.set_trust(0, Trust::kTrusted);
  EXPECT_EQ(serve({.cached_tokens = 0}), 1U);
  EXPECT_EQ(serve({.cached_tokens = 48}), 1U) << "70 tokens, of which 22 were computed";
  EXPECT_EQ(serve({.cached_tokens = 38}), 2U) << "32 were";
  EXPECT_EQ(serve({.event = Feedback::Event::kFailed, .cached_tokens = 0}), 2U);
  Decision decision = decide(not_these);
  router_->events_heard(0);
  finish(decision, {.cached_tokens = 0});
  EXPECT_EQ(router_->computed_prompts(0), 2U) << "its event has come";
  features_.exact_blocks = 0;
  EXPECT_EQ(serve({.cached_tokens = 0}), 2U) << "its token ids are not known";
}

TEST_F(RouterWithEvents, AnEngineThatHasEmptiedItsCacheIsBelievedToHoldNothing) {
  make(true);
  const std::vector<ReplicaIndex> not_these = {1, 2};
  EXPECT_EQ(route(not_these), 0U);
  Decision again = decide(not_these);
  EXPECT_EQ(again.predicted_cached_tokens, 64U);
  finish(again);
  for (int i = 0; i < 40; ++i) {
    Decision decision = decide(not_these);
    finish(decision, {.prompt_tokens = 70, .cached_tokens = 0});
  }
  EXPECT_EQ(router_->prefix_trust().share(0, Knowledge::kSent), 0.0);
  router_->forget_cache(0);
  EXPECT_EQ(router_->prefix_trust().share(0, Knowledge::kSent), 1.0);
  Decision fresh = decide(not_these);
  EXPECT_EQ(fresh.predicted_cached_tokens, 0U);
  finish(fresh);
  Decision warm = decide(not_these);
  EXPECT_EQ(warm.predicted_cached_tokens, 64U);
  finish(warm);
}

TEST_F(RouterWithEvents, TheLastBlockOfABatchsFirstPromptIsComputed) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(0, Trust::kTrusted);
  caches.store({.replica = 0}, std::nullopt, chain_);
  features_.prompt_tokens = 64 + 20;
  features_.chain_tokens = 64;
  Decision decision = decide();
  EXPECT_EQ(decision.predicted_cached_tokens, 48U);
  finish(decision);
}

TEST_F(RouterWithEvents, WhatIsComputedAnewIsPredictedNowhere) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(0, Trust::kTrusted);
  caches.store({.replica = 0}, std::nullopt, chain_);
  features_.computes_all = true;
  const std::vector<ReplicaIndex> not_first = {0};
  Decision decision = decide(not_first);
  EXPECT_EQ(decision.predicted_cached_tokens, 0U);
  finish(decision, {.prompt_tokens = 70, .cached_tokens = 0});
  Decision other = decide();
  EXPECT_EQ(other.predicted_cached_tokens, 0U);
  EXPECT_EQ(pickers_[0]->holders, 0U);
  finish(other);
  // It is cached there all the same.
  features_.computes_all = false;
  const std::vector<ReplicaIndex> only_second = {0, 2};
  Decision again = decide(only_second);
  EXPECT_EQ(again.predicted_cached_tokens, 64U);
  finish(again);
}

// vLLM on CPUs has blocks of 32 tokens: a prompt that parts from a cached one within such a block
// has the first half of it in the index, and none of it in the engine.
TEST_F(RouterWithEvents, AnEngineFindsWholeBlocksOfItsOwn) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(1, Trust::kTrusted);
  const auto predicted = [&](std::size_t held, std::uint32_t prompt_tokens) {
    caches.forget_blocks(1);
    if (held > 0) caches.store({.replica = 1}, std::nullopt, std::span(chain_).first(held));
    features_.prompt_tokens = prompt_tokens;
    const std::vector<ReplicaIndex> not_these = {0, 2};
    Decision decision = decide(not_these);
    const std::uint32_t tokens = decision.predicted_cached_tokens;
    finish(decision);
    now_ += seconds(60);
    return tokens;
  };
  EXPECT_EQ(predicted(3, 70), 48U) << "the engine has not said how long its blocks are";
  Signals signals;
  signals.block_tokens = 32;
  signals.observed_at = now_;
  signals.window = router_->report_opened(1);
  router_->report_applied(1, signals);
  EXPECT_EQ(predicted(1, 70), 0U);
  EXPECT_EQ(predicted(2, 70), 32U);
  EXPECT_EQ(predicted(3, 70), 32U);
  EXPECT_EQ(predicted(4, 70), 64U);
  EXPECT_EQ(predicted(4, 64), 32U) << "the last block is always computed";
}

TEST_F(RouterWithEvents, WithoutTrustItFallsBackToWhatWasSent) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  const std::vector<ReplicaIndex> not_these = {0};
  EXPECT_EQ(route(not_these), 1U);
  caches.store({.replica = 2}, std::nullopt, chain_);
  caches.set_trust(1, Trust::kTrusted);
  for (const Trust trust : {Trust::kReplaying, Trust::kGap, Trust::kNone}) {
    caches.set_trust(1, trust);
    Decision decision = decide();
    EXPECT_EQ(decision.order[0], 1U) << label(trust);
    EXPECT_EQ(decision.predicted_cached_tokens, 64U);
    finish(decision, {.cached_tokens = 64});
  }
  EXPECT_EQ(router_->counters().cached[0].answers, 3U);
}

TEST_F(RouterWithEvents, TextIsNotLookedForInTheEnginesCaches) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(2, Trust::kTrusted);
  caches.store({.replica = 2}, std::nullopt, chain_);
  features_.exact_blocks = 0;
  EXPECT_EQ(route(), 0U);
  EXPECT_EQ(pickers_[0]->holders, 0U);
  features_.exact_blocks = 400;  // more than there are: all
  route();
  EXPECT_EQ(pickers_[0]->holders, 2U) << "2 by its own word, 0 by what was sent";
}

TEST_F(RouterWithEvents, BehindTheExactBlocksWhatWasSentCountsWhereAllOfThoseAreHeld) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  const std::vector<ReplicaIndex> not_these = {0};
  EXPECT_EQ(route(not_these), 1U);
  caches.set_trust(1, Trust::kTrusted);
  caches.set_trust(2, Trust::kTrusted);
  features_.exact_blocks = 2;
  caches.store({.replica = 1}, std::nullopt, std::span(chain_).first(2));
  caches.store({.replica = 2}, std::nullopt, std::span(chain_).first(2));
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 1U);
  EXPECT_EQ(decision.predicted_cached_tokens, 64U);
  finish(decision);
  now_ += seconds(60);
  caches.remove({.replica = 1}, std::span(chain_).subspan(1, 1), true);
  decision = decide();
  EXPECT_EQ(decision.order[0], 2U);
  EXPECT_EQ(decision.predicted_cached_tokens, 32U);
  finish(decision);
}

TEST_F(RouterWithEvents, TwoRequestsOfABurstMeetAndTheExpectationEnds) {
  make(true);
  for (ReplicaIndex replica = 0; replica < 3; ++replica) {
    router_->engine_caches().set_trust(replica, Trust::kTrusted);
  }
  const std::vector<ReplicaIndex> not_these = {0, 1};
  EXPECT_EQ(route(not_these), 2U);
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 2U) << "no event has come yet";
  EXPECT_EQ(decision.predicted_cached_tokens, 64U);
  finish(decision);
  now_ += 2 * options_.engine_caches.sent_life;
  decision = decide();
  EXPECT_EQ(decision.order[0], 0U) << "and none ever came";
  EXPECT_EQ(decision.predicted_cached_tokens, 0U);
  finish(decision);
}

TEST_F(RouterWithEvents, AForgottenReplicaIsNotTrusted) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(2, Trust::kTrusted);
  caches.store({.replica = 2}, std::nullopt, chain_);
  router_->forget(2);
  EXPECT_EQ(caches.trust(2), Trust::kNone);
  EXPECT_EQ(caches.blocks(), 0U);
  EXPECT_EQ(route(), 0U);
}

TEST_F(RouterWithEvents, ReplicasThatTheFleetDoesNotKnowAreNotAnswered) {
  make(true);
  EngineCaches& caches = router_->engine_caches();
  caches.set_trust(700, Trust::kTrusted);
  caches.store({.replica = 700}, std::nullopt, chain_);
  EXPECT_EQ(route(), 0U);
  EXPECT_EQ(pickers_[0]->holders, 0U);
}

// Stands in for an index that several routers share.
class OneHolder final : public PrefixSource {
 public:
  void match(const Features& features, PrefixMatches& out) override {
    out.holders.push_back({holder, static_cast<std::uint32_t>(features.blocks.size())});
  }
  void sent(const Features&, ReplicaIndex replica) override { holder = replica; }
  void forget(ReplicaIndex replica) override { forgotten = replica; }
  void set_capacity(ReplicaIndex, std::uint64_t blocks) override { capacity = blocks; }

  ReplicaIndex holder = 2;
  ReplicaIndex forgotten = kNoReplica;
  std::uint64_t capacity = 0;
};

TEST_F(RouterTest, APrefixSourceIsAskedAndToldInsteadOfTheOwnIndex) {
  OneHolder source;
  options_.prefixes = &source;
  add_pool(PoolPurpose::kGeneral, 3);
  make(true);
  features_.prompt_tokens = 70;
  const std::vector<BlockHash> chain = {11, 12, 13, 14};
  features_.blocks = chain;
  Decision decision = decide();
  EXPECT_EQ(decision.order[0], 2U);
  EXPECT_EQ(decision.predicted_cached_tokens, 64U);
  finish(decision);
  const std::vector<ReplicaIndex> not_that = {2};
  EXPECT_EQ(route(not_that), 0U);
  EXPECT_EQ(source.holder, 0U);
  Signals report;
  report.window = router_->report_opened(1);
  report.observed_at = now_;
  report.kv_capacity_tokens = 320;
  router_->report_applied(1, report);
  EXPECT_EQ(source.capacity, 20U);
  router_->forget(1);
  EXPECT_EQ(source.forgotten, 1U);
  EXPECT_EQ(router_->index().blocks(), 0U);
}

TEST_F(RouterTest, WhatPeersHaveOutstandingDelaysAPlainRequestsDueTime) {
  options_.initial_prefill_rate = 1'000;
  add_pool(PoolPurpose::kGeneral, 1);
  make(false);
  const std::vector<PeerLoad> loads = {{0, 2, 2'000}};
  router_->peer_applied(0, loads);
  features_.prompt_tokens = 1'000;
  Decision decision = decide();
  std::vector<PeerLoad> told;
  router_->own_loads(now_ + std::chrono::milliseconds(2'999), told);
  EXPECT_EQ(told.at(0).prefill_tokens, 1'000);
  told.clear();
  router_->own_loads(now_ + std::chrono::seconds(3), told);
  EXPECT_EQ(told.at(0).prefill_tokens, 0) << "3,000 tokens at 1,000 a second";
  EXPECT_EQ(told.at(0).in_flight, 1);
  finish(decision);
}

TEST_F(RouterTest, APolicyWithoutBlocksLeavesTheIndexAlone) {
  add_pool(PoolPurpose::kGeneral, 2);
  make(false);
  const std::vector<BlockHash> chain = {11, 12};
  features_.blocks = chain;
  (void)route();
  EXPECT_EQ(router_->index().blocks(), 0U);
}

TEST_F(RouterTest, AReplicaThatRestartedHoldsNothing) {
  add_pool(PoolPurpose::kGeneral, 2);
  make(true);
  features_.prompt_tokens = 70;
  const std::vector<BlockHash> chain = {11, 12, 13, 14};
  features_.blocks = chain;
  const std::vector<ReplicaIndex> not_these = {0};
  EXPECT_EQ(route(not_these), 1U);
  router_->forget(1);
  EXPECT_EQ(pickers_[0]->forgotten, 1U);
  EXPECT_EQ(route(), 0U);
}

// What a replica reports before it has had any request bounds what it is believed to hold.
TEST_F(RouterTest, AReplicaIsBelievedToHoldNoMoreThanItsReportedCapacity) {
  add_pool(PoolPurpose::kGeneral, 1);
  options_.block_tokens = 64;
  make(true);
  router_->report_applied(
      0, {.observed_at = now_, .max_age = seconds(3), .kv_capacity_tokens = 6'400});
  std::vector<BlockHash> chain(30);
  features_.blocks = chain;
  features_.block_tokens = 64;
  features_.prompt_tokens = 30 * 64 + 1;
  for (std::uint64_t prompt = 1; prompt <= 10; ++prompt) {
    for (std::size_t i = 0; i < chain.size(); ++i) chain[i] = prompt << 32 | i;
    (void)route();
  }
  EXPECT_LE(router_->index().blocks(0), 100U) << "6,400 tokens in blocks of 64";
  EXPECT_GE(router_->index().blocks(0), 60U);
}

TEST_F(RouterTest, APlainRequestsPrefillIsDueAfterTheWorkAheadOverTheLearntRate) {
  add_pool(PoolPurpose::kGeneral, 1);
  options_.initial_prefill_rate = 1'000;
  make();
  features_.prompt_tokens = 3'000;
  Decision first = decide();
  Decision second = decide();  // 6,000 tokens at 1,000 a second
  now_ = kStart + milliseconds(2'999);
  router_->report_applied(0, {.observed_at = now_, .max_age = seconds(3)});
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 6'000);
  now_ = kStart + milliseconds(3'000);
  router_->report_applied(0, {.observed_at = now_, .max_age = seconds(3)});
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 3'000);
  now_ = kStart + milliseconds(6'000);
  router_->report_applied(0, {.observed_at = now_, .max_age = seconds(3)});
  EXPECT_EQ(router_->ledger()[0].prefill_tokens, 0);
  finish(first);
  finish(second);
}

TEST_F(RouterTest, ThePrefillRateIsLearntFromStreams) {
  add_pool(PoolPurpose::kGeneral, 1);
  make();
  EXPECT_EQ(router_->prefill_rate(0), 5'000);
  features_.prompt_tokens = 2'000;
  for (int i = 0; i < 200; ++i) {
    features_.stream = i % 2 == 0;
    Decision decision = decide();
    // Streams at 1,000 tokens a second; plain answers say nothing.
    now_ += features_.stream ? seconds(2) : seconds(50);
    router_->first_token(decision.charge, now_);
    finish(decision);
  }
  EXPECT_NEAR(router_->prefill_rate(0), 1'000, 1e-6);
  for (int i = 0; i < 200; ++i) {
    features_.stream = true;
    Decision decision = decide();
    now_ += milliseconds(200);
    router_->first_token(decision.charge, now_);
    finish(decision);
  }
  EXPECT_NEAR(router_->prefill_rate(0), 10'000, 10) << "old samples fade";
  router_->forget(0);
  EXPECT_EQ(router_->prefill_rate(0), 5'000);
}

TEST_F(RouterTest, FeedbackCarriesWhatWasBookedAndTheTimeToTheFirstToken) {
  add_pool(PoolPurpose::kGeneral, 1);
  make();
  features_.prompt_tokens = 500;
  features_.stream = true;
  Decision first = decide();
  Decision second = decide();
  now_ += milliseconds(250);
  router_->first_token(second.charge, now_);
  router_->first_token(second.charge, now_ + seconds(1));
  ASSERT_EQ(pickers_[0]->feedbacks.size(), 1U) << "once a request";
  const Feedback& feedback = pickers_[0]->feedbacks[0];
  EXPECT_EQ(feedback.event, Feedback::Event::kFirstToken);
  EXPECT_EQ(feedback.ttft, milliseconds(250));
  EXPECT_EQ(feedback.work_ahead, 1'000);
  EXPECT_EQ(feedback.cost.prompt_tokens, 500U);
  finish(second, {.event = Feedback::Event::kCancelled});
  finish(first, {.event = Feedback::Event::kFailed});
  ASSERT_EQ(pickers_[0]->feedbacks.size(), 3U);
  EXPECT_EQ(pickers_[0]->feedbacks[1].event, Feedback::Event::kCancelled);
  EXPECT_EQ(pickers_[0]->feedbacks[2].event, Feedback::Event::kFailed);
}

TEST_F(RouterTest, PlainAnswersGiveNoTimeToFirstToken) {
  add_pool(PoolPurpose::kGeneral, 1);
  make();
  Decision decision = decide();
  router_->first_token(decision.charge, now_ + seconds(9));
  finish(decision);
  ASSERT_EQ(pickers_[0]->feedbacks.size(), 1U);
  EXPECT_EQ(pickers_[0]->feedbacks[0].event, Feedback::Event::kFinished);
}

TEST_F(RouterTest, OddReportsBecomeUnknownAndNeverNumbers) {
  make();
  Signals odd{.observed_at = now_, .max_age = seconds(3)};
  odd.kv_usage = -0.5F;
  odd.waiting = -1;
  odd.running = std::numeric_limits<float>::infinity();
  odd.prefix_hit_rate = 40;
  router_->report_applied(3, odd);
  EXPECT_FALSE(router_->signals(3).knows_kv(now_));
  EXPECT_FALSE(router_->signals(3).knows_waiting(now_));
  EXPECT_TRUE(std::isnan(router_->signals(3).running));
  EXPECT_TRUE(std::isnan(router_->signals(3).prefix_hit_rate));
  odd.kv_usage = 1.0001F;
  router_->report_applied(3, odd);
  EXPECT_EQ(router_->signals(3).kv_usage, 1.0F);
  EXPECT_FALSE(router_->signals(9).fresh(now_)) << "of a replica that never reported";
}

TEST_F(RouterTest, AReportAskedForEarlierNeverReplacesOneAskedForLater) {
  make();
  Signals early{.observed_at = now_, .max_age = seconds(3)};
  Signals late = early;
  early.window = router_->report_opened(0);
  late.window = router_->report_opened(0);
  early.waiting = 1;
  late.waiting = 2;
  router_->report_applied(0, late);
  router_->report_applied(0, early);
  EXPECT_EQ(router_->signals(0).waiting, 2);
}

TEST_F(RouterTest, EveryDecisionIsCountedByItsReason) {
  add_pool(PoolPurpose::kGeneral, 2);
  make();
  (void)route();
  const std::vector<ReplicaIndex> one = {0};
  (void)route(one);
  router_->learn_response(5, 1, now_);
  features_.response_id = 5;
  (void)route();
  const auto& counts = router_->counters().decisions;
  EXPECT_EQ(counts[static_cast<std::size_t>(Reason::kPolicy)], 1U);
  EXPECT_EQ(counts[static_cast<std::size_t>(Reason::kOnlyOne)], 1U);
  EXPECT_EQ(counts[static_cast<std::size_t>(Reason::kPinned)], 1U);
}

}  // namespace
}  // namespace pointsman
