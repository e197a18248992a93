#include "core/prefix_index.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

using Chain = std::vector<BlockHash>;

// A chain as the features make it: each hash stands for the content and for all before it.
Chain chain(const std::vector<std::uint64_t>& contents) {
  Chain hashes;
  std::uint64_t before = 42;
  for (const std::uint64_t content : contents) {
    before = Rng(before * 31 + content)();
    hashes.push_back(before);
  }
  return hashes;
}

// `count` contents from `first` on.
std::vector<std::uint64_t> contents(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> all(count);
  for (std::uint64_t& content : all) content = first++;
  return all;
}

std::vector<std::uint64_t> operator+(std::vector<std::uint64_t> a,
                                     const std::vector<std::uint64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::pair<ReplicaIndex, std::uint32_t>> holders(const PrefixIndex& index,
                                                            const Chain& chain) {
  PrefixMatches matches;
  index.match(chain, 0, matches);
  std::vector<std::pair<ReplicaIndex, std::uint32_t>> found;
  for (const auto& holder : matches.holders) found.emplace_back(holder.replica, holder.blocks);
  return found;
}

std::uint32_t shared(const PrefixIndex& index, const Chain& chain, std::uint64_t session) {
  PrefixMatches matches;
  index.match(chain, session, matches);
  return matches.shared_blocks;
}

TEST(PrefixIndex, EmptyIndexKnowsNothing) {
  const PrefixIndex index({});
  EXPECT_THAT(holders(index, chain(contents(0, 5))), IsEmpty());
  EXPECT_THAT(holders(index, {}), IsEmpty());
  EXPECT_EQ(index.blocks(), 0U);
}

TEST(PrefixIndex, EachHolderHasItsOwnMatchLength) {
  PrefixIndex index({});
  const std::vector<std::uint64_t> common = contents(0, 10);
  index.insert(chain(common), 1, 0);
  index.insert(chain(contents(0, 4)), 2, 1);
  index.insert(chain(common + contents(100, 5)), 3, 2);
  index.insert(chain(contents(0, 7) + contents(200, 20)), 4, 3);
  EXPECT_THAT(holders(index, chain(common + contents(100, 50))),
              UnorderedElementsAre(Pair(0, 10), Pair(1, 4), Pair(2, 15), Pair(3, 7)));
  EXPECT_THAT(holders(index, chain(contents(0, 3))),
              UnorderedElementsAre(Pair(0, 3), Pair(1, 3), Pair(2, 3), Pair(3, 3)));
  EXPECT_THAT(holders(index, chain(contents(0, 7) + contents(200, 1))),
              UnorderedElementsAre(Pair(0, 7), Pair(1, 4), Pair(2, 7), Pair(3, 8)));
  EXPECT_THAT(holders(index, chain(contents(1, 5))), IsEmpty());
  EXPECT_EQ(index.blocks(), 10U + 4 + 15 + 27);
  EXPECT_EQ(index.blocks(3), 27U);
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, AConversationGrowsInPlace) {
  PrefixIndex index({});
  std::vector<std::uint64_t> text;
  for (std::uint64_t turn = 0; turn < 300; ++turn) {
    text = text + contents(turn * 1'000, 7);
    index.insert(chain(text), 1, 5);
    ASSERT_THAT(holders(index, chain(text)), UnorderedElementsAre(Pair(5, text.size())));
  }
  EXPECT_EQ(index.blocks(), 2'100U);
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, InsertingAgainChangesNothing) {
  PrefixIndex index({});
  const Chain once = chain(contents(0, 100));
  index.insert(once, 1, 0);
  const std::size_t bytes = index.bytes();
  for (int i = 0; i < 1'000; ++i) index.insert(once, 1, 0);
  EXPECT_EQ(index.blocks(), 100U);
  EXPECT_EQ(index.bytes(), bytes);
}

TEST(PrefixIndex, AChainLongerThanAnyRun) {
  PrefixIndex index({});
  const Chain text = chain(contents(0, 50'000));
  index.insert(text, 1, 0);
  EXPECT_THAT(holders(index, text), UnorderedElementsAre(Pair(0, 50'000)));
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, ABlockIsSharedOnceSeenUnderAnotherKey) {
  PrefixIndex index({});
  const Chain first = chain(contents(0, 10));
  index.insert(first, 1, 0);
  EXPECT_EQ(shared(index, first, 1), 0U);
  EXPECT_EQ(shared(index, first, 2), 10U);

  const Chain second = chain(contents(0, 4) + contents(100, 10));
  index.insert(second, 2, 1);
  EXPECT_EQ(shared(index, first, 1), 4U);
  EXPECT_EQ(shared(index, first, 2), 10U);
  EXPECT_EQ(shared(index, second, 2), 4U);
  EXPECT_EQ(shared(index, second, 3), 14U);

  // The same key on another replica is the same session.
  index.insert(first, 1, 2);
  EXPECT_EQ(shared(index, first, 1), 4U);

  // Another key goes further than the first.
  const Chain longer = chain(contents(0, 20));
  index.insert(longer, 3, 0);
  EXPECT_EQ(shared(index, longer, 1), 20U);
  EXPECT_EQ(shared(index, longer, 3), 10U);
  EXPECT_EQ(shared(index, longer, 4), 20U);
  index.insert(chain(contents(0, 30)), 3, 0);
  EXPECT_EQ(shared(index, chain(contents(0, 30)), 3), 10U);
}

TEST(PrefixIndex, SplittingKeepsWhatIsShared) {
  PrefixIndex index({});
  index.insert(chain(contents(0, 10)), 1, 0);
  index.insert(chain(contents(0, 6)), 2, 1);
  index.insert(chain(contents(0, 3) + contents(50, 3)), 1, 0);  // parts replica 0's run at 3
  index.insert(chain(contents(0, 8) + contents(70, 3)), 1, 0);  // and at 8
  EXPECT_EQ(shared(index, chain(contents(0, 10)), 1), 6U);
  EXPECT_EQ(shared(index, chain(contents(0, 10)), 2), 10U);
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, RequestsWithoutAKeyCountAsOneSession) {
  PrefixIndex index({});
  const Chain text = chain(contents(0, 10));
  index.insert(text, 0, 0);
  index.insert(text, 0, 1);
  EXPECT_EQ(shared(index, text, 0), 0U);
  index.insert(text, 7, 1);
  EXPECT_EQ(shared(index, text, 0), 10U);
}

TEST(PrefixIndex, ForgettingIsComplete) {
  PrefixIndex index({});
  for (std::uint64_t i = 0; i < 200; ++i) {
    index.insert(chain(contents(0, 5) + contents(1'000 * i, i % 40)), i, i % 3);
  }
  const std::uint64_t of_others = index.blocks(0) + index.blocks(2);
  index.forget(1);
  EXPECT_EQ(index.blocks(1), 0U);
  EXPECT_EQ(index.blocks(), of_others);
  EXPECT_EQ(index.evicted_blocks(), 0U);
  for (std::uint64_t i = 0; i < 200; ++i) {
    for (const auto& [replica, blocks] :
         holders(index, chain(contents(0, 5) + contents(1'000 * i, i % 40)))) {
      EXPECT_NE(replica, 1U);
    }
  }
  EXPECT_TRUE(index.consistent());
  index.forget(0);
  index.forget(2);
  index.forget(77);
  EXPECT_EQ(index.blocks(), 0U);
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, CapacityDropsTheLeastRecentlyUsedTailsFirst) {
  PrefixIndex index({});
  index.set_capacity(0, 30);
  const std::vector<std::uint64_t> system = contents(0, 10);
  const Chain a = chain(system + contents(100, 10));
  const Chain b = chain(system + contents(200, 10));
  const Chain c = chain(system + contents(300, 4));
  index.insert(a, 1, 0);
  index.insert(b, 2, 0);
  EXPECT_EQ(index.blocks(0), 30U);
  index.insert(c, 3, 0);  // takes four blocks, from a's end
  EXPECT_EQ(index.blocks(0), 30U);
  EXPECT_EQ(index.evicted_blocks(), 4U);
  EXPECT_THAT(holders(index, a), UnorderedElementsAre(Pair(0, 16)));
  EXPECT_THAT(holders(index, b), UnorderedElementsAre(Pair(0, 20)));
  EXPECT_THAT(holders(index, c), UnorderedElementsAre(Pair(0, 14)));

  index.insert(a, 1, 0);  // needs four again, now b's are the oldest
  EXPECT_THAT(holders(index, a), UnorderedElementsAre(Pair(0, 20)));
  EXPECT_THAT(holders(index, b), UnorderedElementsAre(Pair(0, 16)));
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, CapacityOfOneReplicaLeavesOthersAlone) {
  PrefixIndex index({});
  const Chain text = chain(contents(0, 100));
  index.insert(text, 1, 0);
  index.insert(text, 1, 1);
  index.set_capacity(0, 40);
  EXPECT_THAT(holders(index, text), UnorderedElementsAre(Pair(0, 40), Pair(1, 100)));
  index.insert(chain(contents(0, 200)), 1, 0);
  EXPECT_THAT(holders(index, text), UnorderedElementsAre(Pair(0, 40), Pair(1, 100)));
  EXPECT_TRUE(index.consistent());
}

TEST(PrefixIndex, APrefixTouchedAloneOutlivesItsOldContinuation) {
  PrefixIndex index({});
  index.set_capacity(0, 40);
  const Chain old = chain(contents(0, 20));
  index.insert(old, 1, 0);
  index.insert(chain(contents(100, 20)), 2, 0);
  index.insert(chain(contents(0, 8)), 1, 0);     // the beginning alone
  index.insert(chain(contents(200, 12)), 3, 0);  // pushes out the rest of the old chain
  EXPECT_THAT(holders(index, old), UnorderedElementsAre(Pair(0, 8)));
  EXPECT_THAT(holders(index, chain(contents(100, 20))), UnorderedElementsAre(Pair(0, 20)));
}

// D43: 16 servers, a million distinct prompts that share their first 2,000 characters.
TEST(PrefixIndex, MemoryIsLevelUnderAMillionDistinctPrompts) {
  constexpr std::size_t kBudget = std::size_t{8} << 20;
  constexpr std::size_t kShared = 2'000 / 64;
  PrefixIndex index({.max_bytes = kBudget});
  Chain prompt = chain(contents(0, kShared));
  const Chain beginning = prompt;
  Rng rng(7);
  std::size_t greatest = 0;
  std::size_t least_late = kBudget;
  constexpr int kPrompts = 1'000'000;
  for (int i = 0; i < kPrompts; ++i) {
    prompt.resize(kShared);
    for (std::uint64_t tail = 1 + rng.below(12); tail > 0; --tail) prompt.push_back(rng());
    index.insert(prompt, rng(), static_cast<ReplicaIndex>(i % 16));
    greatest = std::max(greatest, index.bytes());
    if (i > kPrompts / 2) least_late = std::min(least_late, index.bytes());
  }
  EXPECT_LE(greatest, kBudget);
  EXPECT_GE(least_late, kBudget - kBudget / 50);
  EXPECT_THAT(holders(index, beginning), testing::SizeIs(16));
  for (const auto& [replica, blocks] : holders(index, beginning)) EXPECT_EQ(blocks, kShared);
  EXPECT_GT(index.evicted_blocks(), 0U);
  EXPECT_TRUE(index.consistent());
}

// The oldest of all replicas' tails goes first, whoever holds it.
TEST(PrefixIndex, TheOldestTailsGoFirst) {
  PrefixIndex index({.max_bytes = std::size_t{1} << 20});
  std::vector<Chain> prompts;
  Rng rng(8);
  for (int i = 0; i < 20'000; ++i) {
    Chain prompt(10);
    for (BlockHash& hash : prompt) hash = rng();
    index.insert(prompt, rng(), static_cast<ReplicaIndex>(rng.below(16)));
    prompts.push_back(std::move(prompt));
  }
  // What is left is the newest, without a gap.
  std::size_t i = prompts.size();
  while (i > 0 && !holders(index, prompts[i - 1]).empty()) --i;
  EXPECT_GT(i, 0U);
  EXPECT_EQ(index.blocks(), (prompts.size() - i) * 10);
}

TEST(PrefixIndex, AFullIndexTakesAnyShape) {
  PrefixIndex index({.max_bytes = std::size_t{1} << 20});
  Rng rng(9);
  const auto fill = [&](std::size_t length, int count, std::uint64_t replicas) {
    Chain prompt(length);
    for (int i = 0; i < count; ++i) {
      for (BlockHash& hash : prompt) hash = rng();
      for (std::uint64_t r = 0; r < replicas; ++r) {
        index.insert(prompt, 1, static_cast<ReplicaIndex>(r));
      }
      ASSERT_LE(index.bytes(), std::size_t{1} << 20);
    }
    EXPECT_TRUE(index.consistent());
    EXPECT_THAT(holders(index, prompt), testing::SizeIs(replicas));
  };
  fill(1, 40'000, 1);
  EXPECT_GT(index.blocks(), 18'000U);
  fill(4'000, 200, 1);
  EXPECT_GT(index.blocks(), 60'000U);
  fill(1, 2'000, 64);
  EXPECT_GT(index.blocks(), 35'000U);
  fill(3, 40'000, 1);
  EXPECT_GT(index.blocks(), 30'000U);
  fill(4'000, 200, 1);
  EXPECT_GT(index.blocks(), 60'000U);
}

TEST(PrefixIndex, APromptLongerThanTheBudgetKeepsItsBeginning) {
  PrefixIndex index({.max_bytes = std::size_t{1} << 20});
  const Chain text = chain(contents(0, 300'000));
  index.insert(text, 1, 0);
  EXPECT_LE(index.bytes(), std::size_t{1} << 20);
  EXPECT_THAT(holders(index, text), testing::SizeIs(1));
  EXPECT_GE(index.blocks(), 10'000U);
}

TEST(PrefixIndex, WithoutRoomNothingIsKeptAndNothingBreaks) {
  PrefixIndex index({.max_bytes = 0});
  index.insert(chain(contents(0, 10)), 1, 0);
  EXPECT_THAT(holders(index, chain(contents(0, 10))), IsEmpty());
  EXPECT_TRUE(index.consistent());
}

// Every prefix of one prompt, as a prompt: each block becomes a branching point.
TEST(PrefixIndex, EveryBlockMayBeABranchingPoint) {
  PrefixIndex index({});
  const Chain text = chain(contents(0, 6'000));
  for (std::size_t length = text.size(); length > 0; --length) {
    index.insert({text.data(), length}, length, static_cast<ReplicaIndex>(length % 4));
  }
  EXPECT_TRUE(index.consistent());
  for (const auto& [replica, blocks] : holders(index, text)) {
    EXPECT_GE(blocks, PrefixIndex::kMaxPath);
  }
  for (ReplicaIndex replica = 0; replica < 4; ++replica) index.forget(replica);
  EXPECT_EQ(index.blocks(), 0U);
}

// As if hashes collided all the time: answers mean nothing then, but nothing breaks.
TEST(PrefixIndex, CollidingHashesBreakNothing) {
  PrefixIndex index({.max_bytes = 200 << 10});
  PrefixMatches matches;
  Rng rng(13);
  for (int i = 0; i < 200'000; ++i) {
    Chain repeating(1 + rng.below(30));
    for (BlockHash& hash : repeating) hash = 1 + rng.below(12);
    const auto replica = static_cast<ReplicaIndex>(rng.below(4));
    index.match(repeating, rng.below(3), matches);
    index.insert(repeating, rng.below(3), replica);
    if (rng.below(1'000) == 0) index.forget(replica);
    if (rng.below(1'000) == 0) index.set_capacity(replica, rng.below(100));
  }
  for (ReplicaIndex replica = 0; replica < 4; ++replica) index.forget(replica);
  EXPECT_EQ(index.blocks(), 0U);
  EXPECT_TRUE(index.consistent());
}

// At a million blocks, in the shapes that prompts come in; the worst is one-block prompts of
// different beginnings.
TEST(PrefixIndex, AtMost48BytesPerBlockAndReplica) {
  struct Shape {
    const char* name;
    std::size_t shared;    // blocks of a common beginning
    std::size_t own;       // blocks of each prompt's own
    std::uint64_t copies;  // replicas that hold each prompt
  };
  for (const Shape& shape :
       {Shape{"one block each", 0, 1, 1}, Shape{"two blocks each", 0, 2, 1},
        Shape{"one block after a common beginning", 31, 1, 1}, Shape{"short chats", 31, 10, 1},
        Shape{"long documents", 0, 1'563, 1}, Shape{"one block on 64 replicas", 0, 1, 64},
        Shape{"short chats on 2 replicas", 31, 10, 2}}) {
    PrefixIndex index({.max_bytes = std::size_t{1} << 30});
    Rng rng(11);
    Chain prompt(shape.shared + shape.own);
    for (BlockHash& hash : prompt) hash = rng();
    for (std::uint64_t i = 0; index.blocks() < 1'000'000; ++i) {
      for (std::size_t b = shape.shared; b < prompt.size(); ++b) prompt[b] = rng();
      for (std::uint64_t copy = 0; copy < shape.copies; ++copy) {
        index.insert(prompt, i, static_cast<ReplicaIndex>((i + copy) % 64));
      }
    }
    const double each = static_cast<double>(index.bytes()) / static_cast<double>(index.blocks());
    std::printf("%-36s %5.1f bytes per block and replica\n", shape.name, each);
    EXPECT_LE(each, 48.0) << shape.name;
  }
}

}  // namespace
}  // namespace pointsman
