#include "replica/kv_journal.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using sim::ChainRun;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TokenIds counted(std::uint32_t from, std::uint32_t count) {
  TokenIds tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// Blocks 1, 2, 3 with tokens 100 to 147.
class ThreeBlocks : public ::testing::Test {
 protected:
  ThreeBlocks() { journal_.enter(chain_, tokens_, "tenant"); }

  const std::vector<ChainRun> chain_{{1, 1}, {2, 1}, {3, 1}};
  const TokenIds tokens_ = counted(100, 48);
  KvJournal journal_;
};

TEST_F(ThreeBlocks, TellsWhatWasStoredAlongThePromptHoweverItWasChanged) {
  const KvChanges told = journal_.take(std::vector<ChainRun>{{3, 1}, {1, 1}, {2, 1}});
  ASSERT_THAT(told.stored, SizeIs(1));
  EXPECT_THAT(told.stored[0].blocks, ElementsAre(1, 2, 3));
  EXPECT_EQ(told.stored[0].parent, std::nullopt);
  EXPECT_EQ(told.stored[0].tokens, tokens_);
  EXPECT_EQ(told.stored[0].salt, "tenant");
  EXPECT_THAT(told.removed, IsEmpty());
  EXPECT_FALSE(told.cleared);
}

TEST_F(ThreeBlocks, NamesTheParentOfWhatFollowsLater) {
  (void)journal_.take(std::vector<ChainRun>{{1, 1}});
  const KvChanges told = journal_.take(std::vector<ChainRun>{{2, 1}});
  ASSERT_THAT(told.stored, SizeIs(1));
  EXPECT_THAT(told.stored[0].blocks, ElementsAre(2));
  EXPECT_EQ(told.stored[0].parent, 1);
  EXPECT_EQ(told.stored[0].tokens, counted(116, 16));
}

TEST_F(ThreeBlocks, BeginsAnEventAtAFork) {
  journal_.enter(std::vector<ChainRun>{{1, 1}, {4, 1}}, counted(100, 32), "tenant");
  const KvChanges told = journal_.take(std::vector<ChainRun>{{1, 1}, {2, 1}, {4, 1}});
  ASSERT_THAT(told.stored, SizeIs(2));
  EXPECT_THAT(told.stored[0].blocks, ElementsAre(1, 2));
  EXPECT_THAT(told.stored[1].blocks, ElementsAre(4));
  EXPECT_EQ(told.stored[1].parent, 1);
}

TEST_F(ThreeBlocks, TellsNothingOfABlockThatCameAndWentOrWentAndCame) {
  EXPECT_TRUE(journal_.take(std::vector<ChainRun>{{1, 1}, {1, 0}}).empty());
  (void)journal_.take(std::vector<ChainRun>{{1, 1}});
  EXPECT_TRUE(journal_.take(std::vector<ChainRun>{{1, 0}, {1, 1}}).empty());
}

TEST_F(ThreeBlocks, KnowsWhatARequestLeftBehindUntilItIsRemoved) {
  (void)journal_.take(std::vector<ChainRun>{{1, 1}, {2, 1}});
  journal_.leave(std::vector<std::uint64_t>{1, 2, 3});
  EXPECT_EQ(journal_.known(), 3);  // the third may have been stored since the last step
  EXPECT_TRUE(journal_.take({}).empty());
  EXPECT_EQ(journal_.known(), 2);
  const KvChanges told = journal_.take(std::vector<ChainRun>{{2, 0}, {1, 0}});
  EXPECT_THAT(told.removed, ElementsAre(2, 1));
  EXPECT_EQ(journal_.known(), 0);
}

TEST_F(ThreeBlocks, TellsOfAClearedCacheWithTheNextChange) {
  (void)journal_.take(std::vector<ChainRun>{{1, 1}, {2, 1}});
  journal_.clear();
  EXPECT_EQ(journal_.held(), 0);
  // What the model forgot is in its changes, and covered by the clearing.
  const KvChanges told = journal_.take(std::vector<ChainRun>{{1, 0}, {2, 0}, {1, 1}});
  EXPECT_TRUE(told.cleared);
  EXPECT_THAT(told.removed, IsEmpty());
  ASSERT_THAT(told.stored, SizeIs(1));
  EXPECT_THAT(told.stored[0].blocks, ElementsAre(1));
  EXPECT_FALSE(journal_.take({}).cleared);
}

}  // namespace
}  // namespace pointsman
