#include "sim/kv_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

using ::testing::ElementsAre;

TEST(KvModel, StartsEmptyWithEveryBlockFree) {
  const KvModel kv(8);
  EXPECT_EQ(kv.block_count(), 8U);
  EXPECT_EQ(kv.referenced(), 0U);
  EXPECT_EQ(kv.usage(), 0.0);
}

TEST(KvModel, GrowIsAllOrNothing) {
  KvModel kv(4);
  std::vector<BlockId> a;
  std::vector<BlockId> b;
  ASSERT_TRUE(kv.grow(a, {}, 0, 3));
  EXPECT_FALSE(kv.grow(b, {}, 0, 2));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(kv.referenced(), 3U);
  EXPECT_TRUE(kv.grow(b, {}, 0, 1));
  EXPECT_EQ(kv.usage(), 1.0);
}

TEST(KvModel, ReleasedBlocksStayCachedAndCountAsFree) {
  KvModel kv(4);
  const std::vector<BlockHash> chain{11, 12};
  std::vector<BlockId> a;
  ASSERT_TRUE(kv.grow(a, {}, 0, 2));
  kv.publish(a[0], 11);
  kv.publish(a[1], 12);
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 0U);
  EXPECT_EQ(kv.cached_prefix(chain), 2U);
}

TEST(KvModel, SharedBlocksAreCountedOnceAndFreedByTheLast) {
  KvModel kv(4);
  const std::vector<BlockHash> chain{11, 12};
  std::vector<BlockId> a;
  std::vector<BlockId> b;
  ASSERT_TRUE(kv.grow(a, {}, 0, 2));
  kv.publish(a[0], 11);
  kv.publish(a[1], 12);
  ASSERT_TRUE(kv.grow(b, chain, 2, 3));
  EXPECT_THAT(b, ElementsAre(a[0], a[1], ::testing::_));
  EXPECT_EQ(kv.referenced(), 3U);
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 3U);
  kv.release(b);
  EXPECT_EQ(kv.referenced(), 0U);
}

TEST(KvModel, AFreeHitNeedsAFreeBlockToo) {
  KvModel kv(3);
  const std::vector<BlockHash> chain{11, 12};
  std::vector<BlockId> a;
  ASSERT_TRUE(kv.grow(a, {}, 0, 2));
  kv.publish(a[0], 11);
  kv.publish(a[1], 12);
  kv.release(a);
  std::vector<BlockId> b;
  // Two hits out of three free blocks leave room for one more, not for two.
  EXPECT_FALSE(kv.grow(b, chain, 2, 4));
  EXPECT_TRUE(kv.grow(b, chain, 2, 3));
}

TEST(KvModel, AChainLosesItsTailBeforeItsHead) {
  KvModel kv(4);
  const std::vector<BlockHash> chain{11, 12, 13, 14};
  std::vector<BlockId> a;
  ASSERT_TRUE(kv.grow(a, {}, 0, 4));
  for (std::size_t i = 0; i < 4; ++i) kv.publish(a[i], chain[i]);
  kv.release(a);
  std::vector<BlockId> b;
  for (std::size_t left = 3; left > 0; --left) {
    ASSERT_TRUE(kv.grow(b, {}, 0, b.size() + 1));
    EXPECT_EQ(kv.cached_prefix(chain), left);
  }
}

TEST(KvModel, TheLeastRecentlyUsedChainGoesFirst) {
  KvModel kv(4);
  const std::vector<BlockHash> old_chain{11, 12};
  const std::vector<BlockHash> new_chain{21, 22};
  std::vector<BlockId> a;
  std::vector<BlockId> b;
  ASSERT_TRUE(kv.grow(a, {}, 0, 2));
  ASSERT_TRUE(kv.grow(b, {}, 0, 2));
  for (std::size_t i = 0; i < 2; ++i) kv.publish(a[i], old_chain[i]);
  for (std::size_t i = 0; i < 2; ++i) kv.publish(b[i], new_chain[i]);
  kv.release(a);
  kv.release(b);
  // A hit renews the older chain.
  ASSERT_TRUE(kv.grow(a, old_chain, 2, 2));
  kv.release(a);
  std::vector<BlockId> c;
  ASSERT_TRUE(kv.grow(c, {}, 0, 2));
  EXPECT_EQ(kv.cached_prefix(old_chain), 2U);
  EXPECT_EQ(kv.cached_prefix(new_chain), 0U);
}

TEST(KvModel, RandomUseKeepsPrefixesClosedAndReturnsEveryBlock) {
  Rng rng(7);
  KvModel kv(64);
  struct Held {
    std::vector<BlockHash> chain;
    std::vector<BlockId> blocks;
  };
  std::vector<Held> held;
  for (int round = 0; round < 20'000; ++round) {
    if (held.empty() || rng.below(2) == 0) {
      Held next;
      const std::uint64_t conversation = 1 + rng.below(6);
      const std::uint64_t length = 1 + rng.below(12);
      for (std::uint64_t i = 0; i < length; ++i) next.chain.push_back(conversation * 100 + i);
      const std::size_t hit = kv.cached_prefix(next.chain);
      // Nothing beyond the first missing block is cached: evictions go from the tail.
      for (std::size_t i = hit; i < next.chain.size(); ++i) {
        EXPECT_EQ(kv.cached_prefix(std::span(next.chain).subspan(i, 1)), 0U);
      }
      if (kv.grow(next.blocks, next.chain, hit, length)) {
        for (std::size_t i = hit; i < length; ++i) kv.publish(next.blocks[i], next.chain[i]);
        held.push_back(std::move(next));
      }
    } else {
      const std::size_t at = rng.below(held.size());
      kv.release(held[at].blocks);
      held[at] = std::move(held.back());
      held.pop_back();
    }
  }
  for (Held& one : held) kv.release(one.blocks);
  EXPECT_EQ(kv.referenced(), 0U);
}

}  // namespace
}  // namespace pointsman::sim
