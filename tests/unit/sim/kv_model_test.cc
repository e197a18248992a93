#include "sim/kv_model.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Chain = std::vector<ChainRun>;

std::uint32_t cached(const KvModel& kv, const Chain& chain) {
  return kv.find(chain, UINT32_MAX).blocks;
}

// A holding that has its text from the start.
KvHolding holding(const Chain& chain) {
  KvHolding made;
  made.reset(chain);
  return made;
}

// As the engine does it: the hit, the rest, and everything findable.
bool take(KvModel& kv, KvHolding& held, std::uint32_t total) {
  if (!kv.admit(held, kv.find(held.chain(), total), total)) return false;
  kv.publish(held, total);
  return true;
}

TEST(KvModel, StartsEmptyWithEveryBlockFree) {
  const KvModel kv(8);
  EXPECT_EQ(kv.block_count(), 8U);
  EXPECT_EQ(kv.referenced(), 0U);
  EXPECT_EQ(kv.usage(), 0.0);
}

TEST(KvModel, GrowIsAllOrNothing) {
  KvModel kv(4);
  KvHolding a;
  KvHolding b;
  ASSERT_TRUE(kv.grow(a, 3));
  EXPECT_FALSE(kv.grow(b, 2));
  EXPECT_EQ(b.blocks(), 0U);
  EXPECT_EQ(kv.referenced(), 3U);
  EXPECT_TRUE(kv.grow(b, 1));
  EXPECT_EQ(kv.usage(), 1.0);
}

TEST(KvModel, ReleasedBlocksStayCachedAndCountAsFree) {
  KvModel kv(4);
  const Chain chain{{1, 2}};
  KvHolding a = holding(chain);
  ASSERT_TRUE(take(kv, a, 2));
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 0U);
  EXPECT_EQ(cached(kv, chain), 2U);
}

TEST(KvModel, BlocksPastTheChainAreNeverFound) {
  KvModel kv(8);
  KvHolding a = holding({{1, 2}});
  ASSERT_TRUE(take(kv, a, 5));
  EXPECT_EQ(a.findable(), 2U);
  EXPECT_EQ(cached(kv, {{1, 5}}), 2U);
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 0U);
}

TEST(KvModel, SharedBlocksAreCountedOnceAndFreedByTheLast) {
  KvModel kv(4);
  KvHolding a = holding({{1, 2}});
  KvHolding b = holding({{1, 2}, {2, 1}});
  ASSERT_TRUE(take(kv, a, 2));
  ASSERT_TRUE(take(kv, b, 3));
  EXPECT_EQ(kv.referenced(), 3U);
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 3U);
  kv.release(b);
  EXPECT_EQ(kv.referenced(), 0U);
}

TEST(KvModel, AFreeHitNeedsAFreeBlockToo) {
  KvModel kv(3);
  KvHolding a = holding({{1, 2}});
  ASSERT_TRUE(take(kv, a, 2));
  kv.release(a);
  KvHolding b = holding({{1, 2}, {2, 9}});
  // Two hits out of three free blocks leave room for one more, not for two.
  EXPECT_FALSE(take(kv, b, 4));
  EXPECT_TRUE(take(kv, b, 3));
}

TEST(KvModel, AChainLosesItsTailBeforeItsHead) {
  KvModel kv(4);
  const Chain chain{{1, 2}, {2, 2}};
  KvHolding a = holding(chain);
  ASSERT_TRUE(take(kv, a, 4));
  kv.release(a);
  KvHolding b;
  for (std::uint32_t left = 3; left > 0; --left) {
    ASSERT_TRUE(kv.grow(b, b.blocks() + 1));
    EXPECT_EQ(cached(kv, chain), left);
  }
}

TEST(KvModel, TheLeastRecentlyUsedChainGoesFirst) {
  KvModel kv(4);
  const Chain old_chain{{1, 2}};
  const Chain new_chain{{2, 2}};
  KvHolding a = holding(old_chain);
  KvHolding b = holding(new_chain);
  ASSERT_TRUE(take(kv, a, 2));
  ASSERT_TRUE(take(kv, b, 2));
  kv.release(a);
  kv.release(b);
  // A hit renews the older chain.
  ASSERT_TRUE(take(kv, a, 2));
  kv.release(a);
  KvHolding c;
  ASSERT_TRUE(kv.grow(c, 2));
  EXPECT_EQ(cached(kv, old_chain), 2U);
  EXPECT_EQ(cached(kv, new_chain), 0U);
}

TEST(KvModel, ABlockComputedTwiceIsExchangedForTheFirst) {
  KvModel kv(8);
  const Chain chain{{1, 3}};
  KvHolding a = holding(chain);
  KvHolding b = holding(chain);
  ASSERT_TRUE(kv.admit(a, {}, 3));
  ASSERT_TRUE(kv.admit(b, {}, 3));
  kv.publish(a, 3);
  EXPECT_EQ(kv.referenced(), 6U);
  kv.publish(b, 2);
  EXPECT_EQ(kv.referenced(), 4U);
  kv.release(a);
  EXPECT_EQ(kv.referenced(), 3U);  // the first two, and one that b has not filled yet
  kv.release(b);
  EXPECT_EQ(kv.referenced(), 0U);
  EXPECT_EQ(cached(kv, chain), 3U);
}

TEST(KvModel, ClearForgetsEverything) {
  KvModel kv(8);
  KvHolding a = holding({{1, 3}});
  ASSERT_TRUE(take(kv, a, 5));
  kv.release(a);
  kv.clear();
  EXPECT_EQ(cached(kv, {{1, 3}}), 0U);
  EXPECT_EQ(kv.free_blocks(), 8U);
  EXPECT_TRUE(take(kv, a, 8));
}

TEST(KvModel, NotesWhatBecomesFindableAndWhatIsLost) {
  KvModel kv(4);
  KvHolding unnoted = holding({{9, 1}});
  ASSERT_TRUE(take(kv, unnoted, 1));
  kv.note_changes();
  KvHolding a = holding({{1, 1}, {2, 2}});
  ASSERT_TRUE(kv.admit(a, {}, 3));
  kv.publish(a, 2);
  kv.publish(a, 3);
  EXPECT_THAT(kv.take_changes(), ElementsAre(ChainRun{1, 1}, ChainRun{2, 2}));
  kv.release(a);
  EXPECT_THAT(kv.take_changes(), IsEmpty());
  KvHolding b;
  ASSERT_TRUE(kv.grow(b, 2));
  EXPECT_THAT(kv.take_changes(), ElementsAre(ChainRun{2, 0}));
  kv.release(b);
  ASSERT_TRUE(take(kv, a, 3));
  kv.release(a);
  kv.release(unnoted);
  kv.clear();
  EXPECT_THAT(kv.take_changes(),
              UnorderedElementsAre(ChainRun{2, 0}, ChainRun{1, 0}, ChainRun{9, 0}));
}

// The same cache kept block by block, as simply as can be.
class SingleBlocks {
 public:
  struct Held {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> chain;  // run, block of the run
    std::vector<std::size_t> blocks;
    std::size_t findable = 0;
  };

  explicit SingleBlocks(std::size_t count) : names_(count), references_(count) {
    for (std::size_t i = 0; i < count; ++i) free_.push_back(i);
  }

  static Held holding(const Chain& chain) {
    Held held;
    for (const ChainRun& run : chain) {
      for (std::uint32_t i = 0; i < run.blocks; ++i) held.chain.emplace_back(run.id, i);
    }
    return held;
  }

  [[nodiscard]] std::size_t find(const Held& held) const {
    std::size_t hit = 0;
    while (hit < held.chain.size() && findable_.contains(held.chain[hit])) ++hit;
    return hit;
  }

  bool admit(Held& held, std::size_t hit, std::size_t total) {
    std::size_t needed = total;
    for (std::size_t i = 0; i < hit; ++i) {
      if (references_[findable_.at(held.chain[i])] > 0) --needed;
    }
    if (needed > free_.size()) return false;
    for (std::size_t i = 0; i < hit; ++i) held.blocks.push_back(share(held.chain[i]));
    held.findable = hit;
    return grow(held, total);
  }

  bool grow(Held& held, std::size_t total) {
    if (total - held.blocks.size() > free_.size()) return false;
    while (held.blocks.size() < total) {
      const std::size_t block = free_.front();
      free_.pop_front();
      if (names_[block]) findable_.erase(*names_[block]);
      names_[block].reset();
      references_[block] = 1;
      held.blocks.push_back(block);
    }
    return true;
  }

  void publish(Held& held, std::size_t count) {
    for (; held.findable < std::min(count, held.chain.size()); ++held.findable) {
      std::size_t& block = held.blocks[held.findable];
      const auto name = held.chain[held.findable];
      if (findable_.contains(name)) {
        const std::size_t own = block;
        block = share(name);
        references_[own] = 0;
        free_.push_front(own);
      } else {
        findable_[name] = block;
        names_[block] = name;
      }
    }
  }

  void release(Held& held) {
    for (; !held.blocks.empty(); held.blocks.pop_back()) {
      if (--references_[held.blocks.back()] == 0) free_.push_back(held.blocks.back());
    }
    held.findable = 0;
  }

  [[nodiscard]] std::size_t referenced() const { return names_.size() - free_.size(); }

 private:
  std::size_t share(std::pair<std::uint64_t, std::uint32_t> name) {
    const std::size_t block = findable_.at(name);
    if (references_[block]++ == 0) std::erase(free_, block);
    return block;
  }

  std::vector<std::optional<std::pair<std::uint64_t, std::uint32_t>>> names_;
  std::vector<int> references_;
  std::deque<std::size_t> free_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> findable_;
};

// A tree of texts: a few beginnings, below each of them some continuations, some of several runs.
Chain random_chain(Rng& rng) {
  const std::uint64_t beginning = 1 + rng.below(3);
  Chain chain{{beginning, static_cast<std::uint32_t>(2 + beginning)}};
  if (rng.below(8) == 0) {
    chain[0].blocks = static_cast<std::uint32_t>(1 + rng.below(chain[0].blocks));
    return chain;
  }
  const std::uint64_t middle = rng.below(4);
  if (middle > 0) chain.push_back({10 * beginning + middle, static_cast<std::uint32_t>(middle)});
  chain.push_back({100 * beginning + 10 * middle + rng.below(3),
                   static_cast<std::uint32_t>(1 + rng.below(15))});
  return chain;
}

TEST(KvModel, RunsAreKeptExactlyAsSingleBlocksAre) {
  struct Both {
    KvHolding runs;
    SingleBlocks::Held single;
  };
  int shortages = 0;
  int exchanged = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    KvModel kv(64);
    SingleBlocks single(64);
    std::map<std::uint64_t, std::uint32_t> noted;
    kv.note_changes();
    std::deque<Both> held;
    for (int round = 0; round < 3'000; ++round) {
      const std::uint64_t what = rng.below(10);
      if (held.empty() || what < 3) {
        const Chain chain = random_chain(rng);
        Both both{holding(chain), SingleBlocks::holding(chain)};
        const auto limit = static_cast<std::uint32_t>(rng.below(24));
        const KvModel::Hit hit = kv.find(chain, limit);
        ASSERT_EQ(hit.blocks, std::min<std::size_t>(limit, single.find(both.single)));
        const auto total = static_cast<std::uint32_t>(hit.blocks + rng.below(12));
        const bool room = single.admit(both.single, hit.blocks, total);
        ASSERT_EQ(kv.admit(both.runs, hit, total), room);
        if (room && total > 0) held.push_back(std::move(both));
        if (!room) ++shortages;
      } else if (what < 8) {
        Both& both = held[rng.below(held.size())];
        const auto total = static_cast<std::uint32_t>(both.runs.blocks() + rng.below(4));
        ASSERT_EQ(kv.grow(both.runs, total), single.grow(both.single, total));
        const auto full = static_cast<std::uint32_t>(rng.below(both.runs.blocks() + 1));
        const std::size_t before = single.referenced();
        kv.publish(both.runs, full);
        single.publish(both.single, full);
        ASSERT_EQ(both.runs.findable(), both.single.findable);
        if (single.referenced() < before) ++exchanged;
      } else {
        const std::size_t at = rng.below(held.size());
        kv.release(held[at].runs);
        single.release(held[at].single);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
      ASSERT_EQ(kv.referenced(), single.referenced());
      if (rng.below(3) == 0) {
        for (const ChainRun& change : kv.take_changes()) noted[change.id] = change.blocks;
        for (const auto& [id, blocks] : noted) ASSERT_EQ(cached(kv, {{id, 1'000}}), blocks);
      }
      const Chain any = random_chain(rng);
      ASSERT_EQ(cached(kv, any), single.find(SingleBlocks::holding(any)));
    }
    for (Both& both : held) kv.release(both.runs);
    EXPECT_EQ(kv.referenced(), 0U);
  }
  EXPECT_GT(shortages, 100);
  EXPECT_GT(exchanged, 100);
}

}  // namespace
}  // namespace pointsman::sim
