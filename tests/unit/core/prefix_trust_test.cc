#include "core/prefix_trust.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class PrefixTrustTest : public testing::Test {
 protected:
  PrefixTrustTest() { trust.grow(2); }

  // An answer of replica 0 to a prompt of 1,000 tokens of which 800 were predicted.
  void answer(std::optional<std::uint32_t> cached, Knowledge from = Knowledge::kSent) {
    trust.answered(0, {.from = from,
                       .prompt_tokens = 1'000,
                       .matched_tokens = 800,
                       .predicted_tokens = 800,
                       .cached_tokens = cached,
                       .block_tokens = 16,
                       .held_blocks = held});
  }
  void answers(int count, std::optional<std::uint32_t> cached) {
    for (int i = 0; i < count; ++i) answer(cached);
  }
  [[nodiscard]] double share(Knowledge from = Knowledge::kSent) const {
    return trust.share(0, from);
  }

  PrefixTrust trust;
  std::uint64_t held = 4'000;
};

TEST_F(PrefixTrustTest, BelievesAtFirstAndWhilePredictionsComeTrue) {
  EXPECT_EQ(share(), 1);
  answers(100, 800);
  EXPECT_EQ(share(), 1);
  answers(100, 1'000);
  EXPECT_EQ(share(), 1) << "more than predicted is no miss";
  EXPECT_FALSE(trust.any_doubted());
}

TEST_F(PrefixTrustTest, AReplicaThatNeverHitsIsNotBelievedAfterTwentyAnswers) {
  double before = share();
  for (int i = 0; i < 20; ++i) {
    answer(0);
    EXPECT_LE(share(), before);
    before = share();
  }
  // 0.875 ^ 18 is the first power below a tenth.
  EXPECT_EQ(share(), 0);
  EXPECT_TRUE(trust.any_doubted());
  EXPECT_EQ(trust.shares()[0], 0.0F);
  EXPECT_EQ(trust.shares()[1], 1.0F) << "the other one is";
}

TEST_F(PrefixTrustTest, ItIsBelievedAgainOnceItHits) {
  answers(50, 0);
  answers(20, 800);
  EXPECT_EQ(share(), 1);
  EXPECT_FALSE(trust.any_doubted());
}

TEST_F(PrefixTrustTest, HalfOfWhatWasPredictedIsHalfBelieved) {
  answers(200, 400);
  EXPECT_NEAR(share(), (0.5 - 0.1) / 0.8, 1e-6);
}

TEST_F(PrefixTrustTest, EachKindOfKnowledgeIsBelievedForItself) {
  for (int i = 0; i < 50; ++i) answer(0, Knowledge::kEvents);
  EXPECT_EQ(share(Knowledge::kEvents), 0);
  EXPECT_EQ(share(Knowledge::kSent), 1);
  EXPECT_TRUE(trust.any_doubted());
  EXPECT_EQ(trust.capacity(0), 0U) << "events say themselves what was evicted";
}

TEST_F(PrefixTrustTest, AnAnswerWithoutUsageIsNoMiss) {
  answers(1'000, std::nullopt);
  EXPECT_EQ(share(), 1);
  EXPECT_EQ(trust.capacity(0), 0U);
  EXPECT_EQ(trust.error(0).answers, 0U);
}

TEST_F(PrefixTrustTest, WhatABlockOfTheEngineRoundsOffIsNoMiss) {
  PrefixTrust::Answer answer{.prompt_tokens = 1'000,
                             .matched_tokens = 784,
                             .predicted_tokens = 784,
                             .cached_tokens = 528,
                             .block_tokens = 528};
  for (int i = 0; i < 50; ++i) trust.answered(0, answer);
  EXPECT_EQ(share(), 1);
  // A match of less than one block may come to nothing.
  answer.matched_tokens = answer.predicted_tokens = 512;
  answer.cached_tokens = 0;
  for (int i = 0; i < 50; ++i) trust.answered(0, answer);
  EXPECT_EQ(share(), 1);
  // One of several blocks may not, however large the engine says that they are.
  answer.matched_tokens = answer.predicted_tokens = 50'000;
  answer.block_tokens = 1'000'000;
  for (int i = 0; i < 50; ++i) trust.answered(0, answer);
  EXPECT_EQ(share(), 0);
}

TEST_F(PrefixTrustTest, ShortPredictionsTellNothing) {
  for (int i = 0; i < 100; ++i) {
    trust.answered(
        0,
        {.prompt_tokens = 100, .matched_tokens = 48, .predicted_tokens = 48, .cached_tokens = 0});
  }
  EXPECT_EQ(share(), 1);
  EXPECT_EQ(trust.error(0).over_tokens, 4'800U) << "but they are errors";
}

TEST_F(PrefixTrustTest, CountsByHowMuchPredictionsMissedAndWhichWay) {
  answer(800);
  answer(784);
  answer(0);
  answer(1'000);
  const CachedTokensError& error = trust.error(0);
  EXPECT_EQ(error.answers, 4U);
  EXPECT_EQ(error.over_tokens, 816U);
  EXPECT_EQ(error.under_tokens, 200U);
  EXPECT_EQ(error.last_predicted, 800U);
  EXPECT_EQ(error.last_actual, 1'000U);
  EXPECT_EQ(error.buckets[0], 1U) << "none";
  EXPECT_EQ(error.buckets[1], 1U) << "up to 16";
  EXPECT_EQ(error.buckets[5], 1U) << "up to 256";
  EXPECT_EQ(error.buckets[7], 1U) << "up to 1024";
}

TEST_F(PrefixTrustTest, AStrayMissLeavesTheCapacityAlone) {
  trust.set_capacity(0, 10'000);
  answer(0);
  answers(20, 800);
  answer(0);
  EXPECT_EQ(trust.capacity(0), 10'000U);
}

TEST_F(PrefixTrustTest, WhoKeepsMissingHasRoomForLessThanIsHeldOfIt) {
  trust.set_capacity(0, 10'000);
  answers(2, 0);
  EXPECT_EQ(trust.capacity(0), 3'800U) << "95 % of the 4,000 that are held";
  held = 3'800;
  answer(0);
  EXPECT_EQ(trust.capacity(0), 3'610U);
  answers(1'000, 0);
  EXPECT_EQ(trust.capacity(0), 625U) << "a sixteenth of what it reports";
}

TEST_F(PrefixTrustTest, HitsGiveTheCapacityBackSlowly) {
  trust.set_capacity(0, 10'000);
  answers(2, 0);
  answer(800);
  EXPECT_NEAR(static_cast<double>(trust.capacity(0)), 3'820, 1) << "by half a percent and one";
  answers(1'000, 800);
  EXPECT_EQ(trust.capacity(0), 10'000U);
  trust.set_capacity(0, 0);
  EXPECT_EQ(trust.capacity(0), 0U);
}

TEST_F(PrefixTrustTest, AnUnknownCapacityIsCorrectedFromWhatIsHeld) {
  held = 50'000;
  answers(2, 0);
  EXPECT_EQ(trust.capacity(0), 47'500U);
  answers(2'000, 0);
  EXPECT_EQ(trust.capacity(0), 1'024U);
  answers(2'000, 800);
  EXPECT_EQ(trust.capacity(0), 0U) << "no bound again";
}

TEST_F(PrefixTrustTest, AReportBelowTheCorrectedCapacityWins) {
  trust.set_capacity(0, 10'000);
  answers(2, 0);
  trust.set_capacity(0, 2'000);
  EXPECT_EQ(trust.capacity(0), 2'000U);
}

TEST_F(PrefixTrustTest, AnEngineThatKeepsNoPrefixesIsNotBelieved) {
  trust.set_caching(0, false);
  EXPECT_EQ(share(Knowledge::kSent), 0);
  EXPECT_EQ(share(Knowledge::kEvents), 0);
  answers(100, 800);
  EXPECT_EQ(share(), 0);
  trust.set_caching(0, true);
  EXPECT_EQ(share(), 1);
  EXPECT_FALSE(trust.any_doubted());
}

TEST_F(PrefixTrustTest, ForgettingBelievesAgainAndKeepsTheCounts) {
  trust.set_capacity(0, 10'000);
  trust.set_caching(0, false);
  answers(50, 0);
  trust.forget(0);
  EXPECT_EQ(share(), 1);
  EXPECT_EQ(trust.capacity(0), 0U);
  EXPECT_FALSE(trust.any_doubted());
  EXPECT_EQ(trust.error(0).answers, 50U);
}

// The counters of an engine whose answers carry no usage.
class SilentAnswers : public PrefixTrustTest {
 protected:
  // So many answers, then a report by which `rate` of their tokens were found.
  void report_after(int count, double rate) {
    answers(count, std::nullopt);
    queries += 1'000.0 * count;
    hits += 1'000.0 * count * rate;
    trust.counted(0, queries, hits, held);
  }

  double queries = 5e6;
  double hits = 4e6;
};

TEST_F(SilentAnswers, AreJudgedByTheEnginesCounters) {
  trust.counted(0, queries, hits, held);
  report_after(20, 0.8);
  EXPECT_EQ(share(), 1);
  report_after(20, 0.76);
  EXPECT_EQ(share(), 1) << "a rate is coarse";
  for (int i = 0; i < 3; ++i) report_after(20, 0.0);
  EXPECT_EQ(share(), 0);
  for (int i = 0; i < 3; ++i) report_after(20, 0.8);
  EXPECT_EQ(share(), 1);
}

TEST_F(SilentAnswers, TheFirstReportSaysOnlyWhereTheCountersStand) {
  answers(100, std::nullopt);
  trust.counted(0, queries, 0, held);
  EXPECT_EQ(share(), 1);
}

TEST_F(SilentAnswers, FewOfThemSayNothing) {
  trust.counted(0, queries, hits, held);
  report_after(10, 0.0);
  EXPECT_EQ(share(), 1) << "less than 16,384 tokens";
  report_after(10, 0.0);
  EXPECT_LT(share(), 1);
}

TEST_F(SilentAnswers, CountersThatStartAgainSayNothing) {
  trust.counted(0, queries, hits, held);
  answers(100, std::nullopt);
  trust.counted(0, 10, 0, held);
  EXPECT_EQ(share(), 1);
}

TEST_F(SilentAnswers, AReportWithoutCountersChangesNothing) {
  trust.counted(0, queries, hits, held);
  for (int i = 0; i < 4; ++i) {
    answers(20, std::nullopt);
    trust.counted(0, kNan, kNan, held);
  }
  EXPECT_EQ(share(), 1);
  report_after(20, 0.0);
  EXPECT_EQ(share(), 1) << "the other 80 cannot have been looked up since";
  report_after(80, 0.0);
  EXPECT_LT(share(), 1);
}

TEST_F(SilentAnswers, DoNotOutweighThoseWithUsage) {
  trust.counted(0, queries, hits, held);
  answers(30, 800);
  report_after(20, 0.0);
  EXPECT_EQ(share(), 1);
}

TEST(PrefixTrust, EverythingStaysWithinItsBoundsWhateverComes) {
  Rng rng(7);
  PrefixTrust trust;
  trust.grow(3);
  std::uint64_t reported = 0;
  for (int i = 0; i < 200'000; ++i) {
    const auto odd = [&](std::uint64_t most) {
      return static_cast<std::uint32_t>(rng.below(8) == 0 ? (rng.below(2) == 0 ? 0 : UINT32_MAX)
                                                          : rng.below(most));
    };
    switch (rng.below(6)) {
      case 0:
        reported = rng.below(3) == 0 ? 0 : rng.below(100'000);
        trust.set_capacity(1, reported);
        break;
      case 1: {
        const double values[] = {kNan, -1, 0, 1e300, HUGE_VAL, rng.unit() * 1e6};
        trust.counted(1, values[rng.below(6)], values[rng.below(6)], odd(10'000));
        break;
      }
      case 2:
        if (rng.below(50) == 0) trust.forget(1);
        if (rng.below(20) == 0) trust.set_caching(1, rng.below(2) == 0);
        break;
      default: {
        PrefixTrust::Answer answer{.from = static_cast<Knowledge>(rng.below(2)),
                                   .prompt_tokens = odd(5'000),
                                   .matched_tokens = odd(5'000),
                                   .predicted_tokens = odd(5'000),
                                   .block_tokens = odd(100),
                                   .held_blocks = odd(100'000)};
        if (rng.below(3) != 0) answer.cached_tokens = odd(5'000);
        trust.answered(static_cast<ReplicaIndex>(rng.below(5)), answer);
        break;
      }
    }
    for (const Knowledge from : {Knowledge::kSent, Knowledge::kEvents}) {
      const double share = trust.share(1, from);
      ASSERT_TRUE(share >= 0 && share <= 1) << share;
    }
    ASSERT_EQ(trust.shares()[1], static_cast<float>(trust.share(1, Knowledge::kSent)));
    if (reported > 0) {
      ASSERT_LE(trust.capacity(1), std::max<std::uint64_t>(reported, 1));
    }
    const bool doubted = trust.any_doubted();
    bool expected = false;
    for (ReplicaIndex r = 0; r < 3; ++r) {
      expected = expected || trust.share(r, Knowledge::kSent) < 1 ||
                 trust.share(r, Knowledge::kEvents) < 1;
    }
    ASSERT_EQ(doubted, expected);
  }
}

}  // namespace
}  // namespace pointsman
