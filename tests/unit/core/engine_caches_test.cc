#include "core/engine_caches.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using std::chrono::seconds;
using Chain = std::vector<BlockHash>;
using Blocks = std::map<ReplicaIndex, std::uint32_t>;

constexpr TimePoint kStart{std::chrono::hours(1)};

class EngineCachesTest : public testing::Test {
 protected:
  EngineCachesTest() {
    for (ReplicaIndex replica = 0; replica < 4; ++replica) {
      caches_.set_trust(replica, Trust::kTrusted);
    }
  }

  // Blocks by replica.
  Blocks match(const Chain& chain) {
    caches_.match(chain, now_, matches_);
    Blocks blocks;
    for (const EngineCaches::Match& match : matches_) blocks[match.replica] = match.blocks;
    return blocks;
  }

  EngineCaches caches_{{.worth = {1, 0.5, 0.25}}};
  TimePoint now_ = kStart;
  std::vector<EngineCaches::Match> matches_;
};

TEST_F(EngineCachesTest, SaysHowManyLeadingBlocksEachReplicaHolds) {
  const Chain chain = {1, 2, 3, 4, 5, 6, 7};
  caches_.store({.replica = 0}, std::nullopt, chain);
  caches_.store({.replica = 1}, std::nullopt, Chain{1, 2, 3});
  caches_.store({.replica = 3}, std::nullopt, Chain{8, 9});
  EXPECT_EQ(match(chain), (Blocks{{0, 7}, {1, 3}}));
  EXPECT_EQ(match({1, 2, 30, 40}), (Blocks{{0, 2}, {1, 2}}));
  EXPECT_EQ(match({8}), (Blocks{{3, 1}}));
  EXPECT_EQ(match({10, 1, 2}), Blocks{});
  EXPECT_EQ(match({}), Blocks{});
  EXPECT_EQ(caches_.blocks(0), 7U);
  EXPECT_EQ(caches_.blocks(), 12U);
}

TEST_F(EngineCachesTest, NeverCountsPastAHole) {
  const Chain chain = {1, 2, 3, 4, 5, 6, 7, 8};
  caches_.store({.replica = 0}, std::nullopt, chain);
  caches_.store({.replica = 1}, std::nullopt, chain);
  for (std::size_t hole = chain.size(); hole-- > 1;) {
    caches_.remove({.replica = 0}, Chain{chain[hole]}, false);
    EXPECT_EQ(match(chain), (Blocks{{0, hole}, {1, 8}}));
    caches_.store({.replica = 0}, chain[hole - 1], Chain{chain[hole]});
    EXPECT_EQ(match(chain), (Blocks{{0, 8}, {1, 8}}));
  }
  caches_.store({.replica = 2}, 4, Chain{5, 6, 7, 8});
  EXPECT_EQ(match(chain), (Blocks{{0, 8}, {1, 8}}));
  caches_.store({.replica = 2}, std::nullopt, Chain{1, 2, 3});
  EXPECT_EQ(match(chain).at(2), 3U);
  caches_.store({.replica = 2}, 3, Chain{4});
  EXPECT_EQ(match(chain).at(2), 8U);
}

TEST_F(EngineCachesTest, TailsAreEvictedFirst) {
  const Chain chain = {1, 2, 3, 4, 5, 6};
  caches_.store({.replica = 0}, std::nullopt, chain);
  caches_.remove({.replica = 0}, Chain{6, 5}, true);
  EXPECT_EQ(match(chain), (Blocks{{0, 4}}));
  caches_.remove({.replica = 0}, Chain{4, 3, 2, 1}, true);
  EXPECT_EQ(match(chain), Blocks{});
  EXPECT_EQ(caches_.blocks(), 0U);
  EXPECT_TRUE(caches_.consistent());
}

// D64: one rank's cache is cleared, the other's is not.
TEST_F(EngineCachesTest, ClearingOneRankLeavesTheOther) {
  caches_.store({.replica = 1, .rank = 0}, std::nullopt, Chain{1, 2});
  caches_.store({.replica = 1, .rank = 1}, std::nullopt, Chain{1});
  EXPECT_EQ(match({1, 2}), (Blocks{{1, 2}})) << "the best rank";
  caches_.clear(1, 0);
  EXPECT_EQ(match({1, 2}), (Blocks{{1, 1}}));
  caches_.clear(1, 0);
  caches_.clear(1, 1);
  caches_.clear(1, 2);
  EXPECT_EQ(match({1, 2}), Blocks{});
  EXPECT_EQ(caches_.trust(1), Trust::kTrusted);
}

// D65: the same event twice, and removals of what is not held.
TEST_F(EngineCachesTest, DuplicatesCountOnce) {
  caches_.store({.replica = 1}, std::nullopt, Chain{1});
  caches_.store({.replica = 1}, std::nullopt, Chain{1});
  EXPECT_EQ(caches_.blocks(1), 1U);
  caches_.remove({.replica = 1}, Chain{1}, true);
  EXPECT_EQ(match({1}), Blocks{});
  caches_.remove({.replica = 1}, Chain{1}, true);
  caches_.remove({.replica = 1}, Chain{1}, false);
  caches_.remove({.replica = 2}, Chain{1}, true);
  caches_.remove({.replica = 900}, Chain{1}, true);
  EXPECT_EQ(match({1}), Blocks{});
  EXPECT_EQ(caches_.blocks(), 0U);
  EXPECT_TRUE(caches_.consistent());
}

TEST_F(EngineCachesTest, FurtherTiersCountForLess) {
  const Chain chain = {1, 2, 3, 4, 5, 6, 7, 8};
  caches_.store({.replica = 0, .tier = Tier::kGpu}, std::nullopt, Chain{1, 2});
  caches_.store({.replica = 0, .tier = Tier::kCpu}, 2, Chain{3, 4, 5, 6});
  EXPECT_EQ(match(chain), (Blocks{{0, 4}})) << "2 + 4 * 0.5";
  EXPECT_EQ(matches_[0].length, 6U);
  caches_.store({.replica = 0, .tier = Tier::kDisk}, std::nullopt, chain);
  EXPECT_EQ(match(chain), (Blocks{{0, 4}})) << "2 + 4 * 0.5 + 2 * 0.25, rounded down";
  EXPECT_EQ(matches_[0].length, 8U);
  // Held in two tiers: the nearer one counts, and when it goes the further one does.
  caches_.remove({.replica = 0, .tier = Tier::kGpu}, Chain{2, 1}, false);
  EXPECT_EQ(match(chain), (Blocks{{0, 2}})) << "8 * 0.25";
  EXPECT_EQ(caches_.blocks(0), 12U);
}

TEST_F(EngineCachesTest, OnlyTrustedReplicasAreAnswered) {
  const Chain chain = {1, 2};
  caches_.store({.replica = 0}, std::nullopt, chain);
  caches_.store({.replica = 9}, std::nullopt, chain);
  EXPECT_EQ(match(chain), (Blocks{{0, 2}}));
  for (const Trust trust : {Trust::kReplaying, Trust::kGap, Trust::kNone}) {
    caches_.set_trust(0, trust);
    EXPECT_EQ(match(chain), Blocks{}) << label(trust);
  }
  caches_.set_trust(9, Trust::kTrusted);
  EXPECT_EQ(match(chain), (Blocks{{9, 2}})) << "what was told before counts";
  caches_.set_trust(0, Trust::kTrusted);
  EXPECT_EQ(match(chain), (Blocks{{0, 2}, {9, 2}}));
}

TEST_F(EngineCachesTest, ARestartForgetsBlocksAndALeaverItsTrustAsWell) {
  const Chain chain = {1, 2};
  caches_.store({.replica = 0}, std::nullopt, chain);
  caches_.store({.replica = 0, .rank = 1}, std::nullopt, chain);
  caches_.forget_blocks(0);
  EXPECT_EQ(match(chain), Blocks{});
  EXPECT_EQ(caches_.trust(0), Trust::kTrusted);
  caches_.store({.replica = 0}, std::nullopt, Chain{1});
  EXPECT_EQ(match(chain), (Blocks{{0, 1}}));
  caches_.forget(0);
  EXPECT_EQ(caches_.trust(0), Trust::kNone);
  caches_.set_trust(0, Trust::kTrusted);
  EXPECT_EQ(match(chain), Blocks{});
}

TEST_F(EngineCachesTest, WhatWasJustSentCountsForAShortTime) {
  const Chain chain = {1, 2, 3, 4};
  caches_.sent(chain, 2, now_);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}}));
  EXPECT_EQ(match({1, 2, 30}), (Blocks{{2, 2}}));
  caches_.store({.replica = 2}, std::nullopt, Chain{1});
  now_ += seconds(3) - Duration(1);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}})) << "at least its life";
  now_ += seconds(3) + Duration(1);
  EXPECT_EQ(match(chain), (Blocks{{2, 1}})) << "at most twice its life: what the engine says";
  caches_.sent(chain, 2, now_);
  now_ += seconds(60);
  EXPECT_EQ(match(chain), (Blocks{{2, 1}})) << "after a long silence";
  caches_.sent(chain, 2, now_);
  caches_.forget_blocks(2);
  EXPECT_EQ(match(chain), Blocks{});
  caches_.set_trust(3, Trust::kGap);
  caches_.sent(chain, 3, now_);
  caches_.set_trust(3, Trust::kTrusted);
  EXPECT_EQ(match(chain), Blocks{}) << "of untrusted replicas nothing is remembered";
}

TEST_F(EngineCachesTest, WhatWasJustSentEndsWithTheEnginesCache) {
  const Chain chain = {1, 2, 3, 4};
  caches_.sent(chain, 2, now_);
  caches_.sent(chain, 3, now_);
  caches_.clear(2, 0);
  EXPECT_EQ(match(chain), (Blocks{{3, 4}}));
}

// An engine that keeps nothing, and is sent the same prompt every half second.
TEST_F(EngineCachesTest, WhatTheEngineNeverTellsOfIsNotRenewedForEver) {
  const Chain chain = {1, 2, 3, 4};
  int in_a_row = 0;
  int most = 0;
  for (int i = 0; i < 200; ++i) {
    in_a_row = match(chain).empty() ? 0 : in_a_row + 1;
    most = std::max(most, in_a_row);
    caches_.sent(chain, 2, now_);
    now_ += std::chrono::milliseconds(500);
  }
  EXPECT_LE(most, 24) << "12 seconds";
  // Requests of a burst meet at any time at one that tells of blocks.
  for (int i = 0; i < 20; ++i) {
    caches_.store({.replica = 2}, std::nullopt, Chain{1'000 + static_cast<BlockHash>(i)});
    caches_.sent(chain, 2, now_);
    now_ += std::chrono::milliseconds(2'900);
    EXPECT_EQ(match(chain), (Blocks{{2, 4}}));
  }
}

TEST_F(EngineCachesTest, WhatWasJustSentEndsWhereTheEngineDropsIt) {
  const Chain chain = {1, 2, 3, 4};
  caches_.sent(chain, 2, now_);
  caches_.sent(chain, 3, now_);
  caches_.store({.replica = 2}, std::nullopt, chain);
  caches_.remove({.replica = 2}, Chain{9}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}, {3, 4}})) << "nothing of it was dropped";
  caches_.remove({.replica = 2}, Chain{4, 3}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 2}, {3, 4}})) << "the engine's word stands";
  EXPECT_EQ(match({1, 2, 3}), (Blocks{{2, 2}, {3, 3}}));
  EXPECT_EQ(match({1, 2, 30}), (Blocks{{2, 2}, {3, 2}}));
  caches_.remove({.replica = 2}, Chain{2, 1}, true);
  EXPECT_EQ(match(chain), (Blocks{{3, 4}}));
}

// An engine that is full makes room for a request by dropping others' blocks. Those that share the
// request's prefix meet all the same.
TEST_F(EngineCachesTest, WhatWasJustSentOutlivesOtherBlocksThatTheEngineDropsForIt) {
  const Chain chain = {1, 2, 3, 4};
  const Chain old = {7, 8, 9};
  caches_.store({.replica = 2}, std::nullopt, Chain{1});
  caches_.store({.replica = 2}, std::nullopt, old);
  caches_.sent(chain, 2, now_);
  caches_.remove({.replica = 2}, Chain{9, 8}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}}));
  EXPECT_EQ(match({1, 2, 3, 40}), (Blocks{{2, 3}}));
  caches_.store({.replica = 2}, 1, Chain{2});
  caches_.remove({.replica = 2}, Chain{7}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}})) << "in the middle of its computation";
}

TEST_F(EngineCachesTest, WhatWasDroppedAndIsSentAgainCountsAgain) {
  const Chain chain = {1, 2, 3, 4};
  caches_.sent(chain, 2, now_);
  caches_.store({.replica = 2}, std::nullopt, chain);
  caches_.remove({.replica = 2}, Chain{4, 3, 2}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 1}}));
  now_ += seconds(4);  // the drops are in the older generation by then
  EXPECT_EQ(match(chain), (Blocks{{2, 1}}));
  caches_.sent(chain, 2, now_);
  EXPECT_EQ(match(chain), (Blocks{{2, 4}}));
  caches_.store({.replica = 2}, 1, Chain{2});
  EXPECT_EQ(match(chain), (Blocks{{2, 4}}));
}

TEST_F(EngineCachesTest, WhatMovedToASlowerTierCountsAsTheEngineSays) {
  const Chain chain = {1, 2, 3, 4};
  caches_.sent(chain, 2, now_);
  caches_.store({.replica = 2}, std::nullopt, chain);
  caches_.store({.replica = 2, .tier = Tier::kCpu}, 2, Chain{3, 4});
  caches_.remove({.replica = 2}, Chain{4, 3}, true);
  EXPECT_EQ(match(chain), (Blocks{{2, 3}})) << "2 + 2 * 0.5";
}

TEST_F(EngineCachesTest, TooManyDropsEndAllThatWasSentToTheReplica) {
  const Chain chain = {1, 2, 3, 4};
  Rng rng(6);
  Chain others(200'000);
  for (BlockHash& block : others) block = rng();
  caches_.store({.replica = 2}, std::nullopt, others);
  caches_.sent(chain, 2, now_);
  caches_.sent(chain, 3, now_);
  caches_.remove({.replica = 2}, others, true);
  EXPECT_EQ(match(chain), (Blocks{{3, 4}}));
  EXPECT_TRUE(caches_.consistent());
}

// Against a plain list, with engines that drop tails first.
TEST_F(EngineCachesTest, ExpectationsHaveTheAnswersOfAPlainList) {
  struct Sent {
    TimePoint at;
    Chain chain;
  };
  Rng rng(7);
  std::vector<Sent> sends;
  Chain held;                   // by replica 2: leading blocks of some chain
  std::set<BlockHash> dropped;  // and not sent again since
  const auto draw = [&] {
    Chain chain(1 + rng.below(12));
    BlockHash key = 17;
    for (BlockHash& out : chain) {
      key = (key ^ (1 + rng.below(8) / 7)) * 0x9e3779b97f4a7c15ULL;
      out = key;
    }
    return chain;
  };
  const auto common = [](const Chain& a, const Chain& b) {
    return static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  };
  for (int step = 0; step < 20'000; ++step) {
    now_ += std::chrono::milliseconds(rng.below(100));
    const Chain chain = draw();
    switch (rng.below(3)) {
      case 0:
        caches_.sent(chain, 2, now_);
        sends.push_back({now_, chain});
        for (const BlockHash block : chain) dropped.erase(block);
        break;
      case 1:  // the engine takes up this one and makes room, if it has to
        while (held.size() > common(held, chain)) {
          caches_.remove({.replica = 2}, Chain{held.back()}, true);
          dropped.insert(held.back());
          held.pop_back();
        }
        caches_.store({.replica = 2}, held.empty() ? std::nullopt : std::optional(held.back()),
                      chain);
        held = chain;
        break;
      default:
        break;
    }
    const std::uint32_t known = common(chain, held);
    std::uint32_t least = known;  // of what was sent within its shortest life
    std::uint32_t most = known;   // within its longest
    for (const Sent& sent : sends) {
      std::uint32_t length = known;
      while (length < common(chain, sent.chain) && !dropped.contains(chain[length])) ++length;
      if (now_ - sent.at < seconds(3)) least = std::max(least, length);
      if (now_ - sent.at < seconds(6)) most = std::max(most, length);
    }
    const Blocks answer = match(chain);
    const std::uint32_t told = answer.contains(2) ? answer.at(2) : 0;
    ASSERT_GE(told, least) << "step " << step;
    ASSERT_LE(told, most) << "step " << step;
    std::erase_if(sends, [&](const Sent& sent) { return now_ - sent.at >= seconds(6); });
  }
}

// 200 ranks that come and go take four tables of 64 and not one for each that ever was.
TEST_F(EngineCachesTest, PlacesOfLeaversAreUsedAgain) {
  Rng rng(1);
  const auto round = [&] {
    for (ReplicaIndex replica = 0; replica < 200; ++replica) {
      caches_.forget_blocks(replica);
      Chain own = {1, 2, 3};
      for (int i = 0; i < 20; ++i) own.push_back(rng());
      caches_.store({.replica = replica}, std::nullopt, own);
    }
  };
  for (int i = 0; i < 5; ++i) round();
  const std::size_t before = caches_.bytes();
  for (int i = 0; i < 30; ++i) round();
  EXPECT_LT(caches_.bytes(), before * 5 / 4);
  EXPECT_TRUE(caches_.consistent());
  EXPECT_EQ(match({1, 2, 3}), (Blocks{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

TEST_F(EngineCachesTest, GivesMemoryBack) {
  Rng rng(2);
  const std::size_t empty = caches_.bytes();
  std::vector<Chain> chains(2'000);
  for (Chain& chain : chains) {
    for (int i = 0; i < 100; ++i) chain.push_back(rng());
    caches_.store({.replica = 0}, std::nullopt, chain);
  }
  const std::size_t full = caches_.bytes();
  for (const Chain& chain : chains) caches_.remove({.replica = 0}, chain, true);
  EXPECT_LT(caches_.bytes() - empty, full / 20) << "removed";
  for (const Chain& chain : chains) caches_.store({.replica = 1}, std::nullopt, chain);
  caches_.forget(1);
  for (int i = 0; i < 1'000; ++i) caches_.store({.replica = 2}, std::nullopt, Chain{1});
  EXPECT_LT(caches_.bytes() - empty, full / 20) << "forgotten";
  EXPECT_TRUE(caches_.consistent());
}

// At every number of blocks on the way, not just where the tables happen to be full.
TEST_F(EngineCachesTest, AtMost20AndAHalfBytesPerBlockAndReplicaInAnyShape) {
  Rng rng(3);
  double most_alone = 0;
  double most_shared = 0;
  EngineCaches alone({});
  EngineCaches shared({});
  constexpr int kEnough = 20'000;  // blocks from where the fixed part is small
  for (int i = 0; i < 300'000; ++i) {
    const Chain one = {rng()};
    alone.store({.replica = static_cast<ReplicaIndex>(i % 64)}, std::nullopt, one);
    if (i >= kEnough) {
      most_alone = std::max(
          most_alone, static_cast<double>(alone.bytes()) / static_cast<double>(alone.blocks()));
    }
    if (i >= 50'000) continue;
    for (ReplicaIndex replica = 0; replica < 4; ++replica) {
      shared.store({.replica = replica}, std::nullopt, one);
    }
    if (i >= kEnough) {
      most_shared = std::max(
          most_shared, static_cast<double>(shared.bytes()) / static_cast<double>(shared.blocks()));
    }
  }
  EXPECT_LT(most_alone, 20.5);
  EXPECT_LT(most_shared, 5.5);
}

// The allocator's own account, where it has one.
TEST_F(EngineCachesTest, BytesAreThoseThatTheAllocatorGaveOut) {
  const std::size_t before = mallinfo2().uordblks;
  if (before == 0) GTEST_SKIP() << "another allocator";
  const auto measured = [&] { return mallinfo2().uordblks - before; };
  constexpr std::size_t kLimit = std::size_t{2} << 20;
  EngineCaches limited({.max_bytes = kLimit});
  Chain chain(50);
  Rng rng(4);
  std::size_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    for (BlockHash& block : chain) block = rng();
    const auto replica = static_cast<ReplicaIndex>(i % 40);
    if (!limited.store({.replica = replica}, std::nullopt, chain)) limited.forget_blocks(replica);
    ASSERT_LE(limited.bytes(), kLimit);
    most = std::max(most, measured());
    ASSERT_NEAR(measured(), limited.bytes(), 0.05 * kLimit);
  }
  EXPECT_LE(most, kLimit);
  EXPECT_GT(most, kLimit / 2);
  EXPECT_GT(limited.overflows(), 0U);
}

TEST_F(EngineCachesTest, WhoAsksForMoreThanThereIsRoomForIsShutOutUntilItsBlocksAreForgotten) {
  EngineCaches limited({.max_bytes = std::size_t{1} << 20});
  limited.set_trust(0, Trust::kTrusted);
  limited.set_trust(1, Trust::kTrusted);
  limited.store({.replica = 0}, std::nullopt, Chain{1, 2, 3});
  Rng rng(5);
  Chain chain(64);
  bool stored = true;
  for (int i = 0; stored; ++i) {
    for (BlockHash& block : chain) block = rng();
    ASSERT_LT(i, 2'000);
    stored = limited.store({.replica = 1}, std::nullopt, chain);
  }
  EXPECT_EQ(limited.overflows(), 1U);
  EXPECT_EQ(limited.trust(1), Trust::kNone);
  EXPECT_EQ(limited.blocks(1), 0U);
  EXPECT_FALSE(limited.store({.replica = 1}, std::nullopt, Chain{1}));
  limited.set_trust(1, Trust::kTrusted);
  EXPECT_FALSE(limited.trusted(1));
  EXPECT_EQ(limited.trust(0), Trust::kTrusted);
  EXPECT_EQ(limited.blocks(0), 3U);
  limited.forget_blocks(1);
  EXPECT_TRUE(limited.store({.replica = 1}, std::nullopt, Chain{1}));
  limited.set_trust(1, Trust::kTrusted);
  EXPECT_TRUE(limited.trusted(1));
}

// Keys that agree in many bits, and the worst numbers.
TEST_F(EngineCachesTest, KeysThatLookAlikeAreToldApart) {
  Chain chain;
  for (std::uint64_t i = 0; i < 64; ++i) chain.push_back(std::uint64_t{1} << i);
  for (std::uint64_t i = 0; i < 5'000; ++i) chain.push_back(i << 40 | 0x5555);
  chain.push_back(0);
  chain.push_back(~std::uint64_t{0});
  caches_.store({.replica = 0}, std::nullopt, chain);
  EXPECT_EQ(match(chain), (Blocks{{0, chain.size()}}));
  for (const BlockHash block : chain) {
    ASSERT_EQ(match({block}), (Blocks{{0, 1}}));
    ASSERT_EQ(match({block + 3}).size(), std::count(chain.begin(), chain.end(), block + 3));
  }
  EXPECT_TRUE(caches_.consistent());
}

TEST_F(EngineCachesTest, ReplicasAndRanksBeyondTheirLimitsAreLeftOut) {
  EXPECT_TRUE(caches_.store({.replica = kMaxReplicas}, std::nullopt, Chain{1}));
  EXPECT_TRUE(
      caches_.store({.replica = 0, .rank = EngineCaches::kMaxRanks}, std::nullopt, Chain{1}));
  caches_.set_trust(kNoReplica, Trust::kTrusted);
  caches_.forget(kNoReplica);
  EXPECT_EQ(caches_.trust(kNoReplica), Trust::kNone);
  EXPECT_EQ(caches_.blocks(kNoReplica), 0U);
  EXPECT_EQ(match({1}), Blocks{});
}

}  // namespace
}  // namespace pointsman
