#include "kv_events/event_stream.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/event_payload.h"
#include "support/held_keys.h"

namespace pointsman {
namespace {

using test::HeldKeys;
using test::packed;
using test::packed_batch;
using test::packed_cleared;
using test::packed_removed;

// A publisher with its buffer, and the stream that follows it.
class EventStreamTest : public ::testing::Test {
 protected:
  // Block h is one of a prompt of its own.
  static std::string stored(std::uint64_t block) {
    std::vector<std::uint32_t> tokens(16);
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint32_t>(block * 100));
    return packed({.blocks = {block}, .tokens = tokens});
  }
  [[nodiscard]] BlockHash key(std::uint64_t block) const {
    std::vector<std::uint32_t> tokens(16);
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint32_t>(block * 100));
    return chain_.extend(chain_.start("base", ""), tokens);
  }
  [[nodiscard]] bool held(std::uint64_t block) const { return held_.holds(key(block)); }

  static EventStream::Options options(bool can_replay) {
    EventStream::Options options;
    options.can_replay = can_replay;
    return options;
  }

  // The engine publishes these events as its next batch; `heard`: and it arrives.
  void publish(std::initializer_list<std::string> events, bool heard = true) {
    log_.push_back(packed_batch(events, ++time_));
    if (heard) stream_.published(log_.size() - 1, log_.back(), held_);
  }
  void restart_engine() { log_.clear(); }

  // Answers the replay that is wanted. `kept`: of the last batches, so many are still there.
  void replay(std::size_t kept = 10'000) {
    const std::optional<std::uint64_t> from = stream_.wanted();
    ASSERT_TRUE(from.has_value());
    stream_.replay_begun();
    EXPECT_FALSE(stream_.wanted().has_value());
    for (std::size_t i = log_.size() - std::min(kept, log_.size()); i < log_.size(); ++i) {
      if (i < *from) continue;
      EXPECT_TRUE(stream_.replayed(i, log_[i], held_));
    }
    stream_.replay_ended(held_);
  }

  TokenChain chain_{7};
  TableBudget budget_;
  EventStream stream_{chain_, budget_, "base", options(true)};
  HeldKeys held_;
  std::vector<std::string> log_;
  double time_ = 1e9;
};

class WithoutReplay : public EventStreamTest {
 protected:
  void batch(EventStream& stream, std::uint64_t number, std::initializer_list<std::string> events) {
    stream.published(number, packed_batch(events, ++time_), held_);
  }
  EventStream alone_{chain_, budget_, "base", options(false)};
};

TEST_F(EventStreamTest, AnEngineThatHasPublishedNothingIsTrusted) {
  EXPECT_EQ(stream_.trust(), Trust::kNone);
  EXPECT_EQ(stream_.wanted(), 0U);
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  publish({stored(1)});
  EXPECT_TRUE(held(1));
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_EQ(stream_.why(), "");
}

TEST_F(EventStreamTest, OfAnEngineThatAlreadyRunsAllIsReplayed) {
  for (std::uint64_t block = 1; block <= 5; ++block) publish({stored(block)}, false);
  publish({packed_removed({2})}, false);
  publish({stored(6)});  // Heard before the replay: it waits.
  EXPECT_EQ(stream_.trust(), Trust::kReplaying);
  EXPECT_FALSE(held(6));
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(held(1) && !held(2) && held(5) && held(6));
  EXPECT_EQ(stream_.counts().duplicates, 1U);
  EXPECT_EQ(stream_.counts().restarts, 0U);
}

TEST_F(EventStreamTest, AReplayThatDoesNotBeginAtTheBeginningLeavesAGap) {
  for (std::uint64_t block = 1; block <= 5; ++block) publish({stored(block)}, false);
  replay(2);
  EXPECT_EQ(stream_.trust(), Trust::kGap);
  EXPECT_TRUE(!held(3) && held(4) && held(5));
  EXPECT_FALSE(stream_.wanted().has_value());
  publish({packed_cleared()});
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_FALSE(held(4));
}

// Case D62, with somebody to ask.
TEST_F(EventStreamTest, AGapIsReplayed) {
  replay();
  publish({stored(1), stored(2)});
  publish({packed_removed({2})});
  publish({packed_removed({1})}, false);
  publish({stored(3)}, false);
  publish({stored(9)});
  EXPECT_EQ(stream_.trust(), Trust::kReplaying);
  EXPECT_EQ(stream_.wanted(), 1U);  // From the last one that was seen.
  EXPECT_TRUE(held(1));
  publish({stored(10)});  // Waits, too.
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(!held(1) && !held(2) && held(3) && held(9) && held(10));
  EXPECT_EQ(stream_.counts().gaps, 1U);
  EXPECT_EQ(stream_.counts().losses, 0U);
}

TEST_F(EventStreamTest, AReplayWithAHoleLosesWhatWasKnown) {
  replay();
  publish({stored(1)});
  publish({packed_removed({1})}, false);
  publish({stored(2)}, false);
  publish({stored(3)});
  replay(2);
  EXPECT_EQ(stream_.trust(), Trust::kGap);
  EXPECT_TRUE(!held(1) && held(2) && held(3));
  EXPECT_EQ(stream_.counts().losses, 1U);
}

TEST_F(EventStreamTest, AReplayThatFailsLosesWhatWasKnown) {
  replay();
  publish({stored(1)});
  publish({packed_removed({1})}, false);
  publish({stored(3)});
  publish({stored(4)});
  stream_.replay_begun();
  stream_.replay_failed(held_);
  EXPECT_EQ(stream_.trust(), Trust::kGap);
  EXPECT_TRUE(!held(1) && held(3) && held(4));
  // The next gap asks again.
  publish({stored(5)}, false);
  publish({stored(6)});
  replay();
  EXPECT_TRUE(held(3) && held(5) && held(6));
}

TEST_F(EventStreamTest, BatchesMissedDuringAReplayAreAskedForAgain) {
  replay();
  publish({stored(1)});
  publish({stored(2)}, false);
  publish({stored(3)});
  stream_.replay_begun();
  EXPECT_TRUE(stream_.replayed(0, log_[0], held_));
  EXPECT_TRUE(stream_.replayed(1, log_[1], held_));
  publish({stored(4)}, false);
  publish({stored(5)});
  EXPECT_TRUE(stream_.replayed(2, log_[2], held_));
  stream_.replay_ended(held_);
  EXPECT_EQ(stream_.wanted(), 2U);
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(held(1) && held(2) && held(3) && held(4) && held(5));
}

TEST_F(EventStreamTest, AskingEndsWhereItDoesNotHelp) {
  replay();
  publish({stored(1)});
  publish({stored(2)}, false);
  publish({stored(3)});
  int asked = 0;
  while (stream_.wanted() && asked < 20) {
    ++asked;
    stream_.replay_begun();
    EXPECT_TRUE(stream_.replayed(0, log_[0], held_));  // It never has what was missed.
    stream_.replay_ended(held_);
  }
  EXPECT_LE(asked, 3);
  EXPECT_EQ(stream_.trust(), Trust::kGap);
  EXPECT_TRUE(!held(1) && held(3));
}

// What answers on the port is no engine: its numbers are not believed.
TEST_F(EventStreamTest, AnswersThatAreNoBatchesAreNoReplay) {
  replay();
  publish({stored(1)});
  publish({stored(2)}, false);
  publish({stored(3)});
  ASSERT_TRUE(stream_.wanted());
  stream_.replay_begun();
  EXPECT_FALSE(stream_.replayed(12'345, "no batch", held_));
  EXPECT_FALSE(stream_.replayed(EventStream::kMostBatches, log_[0], held_));
  EXPECT_EQ(stream_.next(), 1U);
  EXPECT_EQ(stream_.counts().undecodable, 2U);
  stream_.replay_failed(held_);
  EXPECT_EQ(stream_.trust(), Trust::kGap);
  EXPECT_EQ(stream_.next(), 3U);
  EXPECT_FALSE(stream_.wanted());
  // Once more, of what is kept: all of it is.
  stream_.ask_anew(held_);
  EXPECT_EQ(stream_.wanted(), 0U);
  EXPECT_EQ(stream_.trust(), Trust::kReplaying);
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(held(1) && held(2) && held(3));
}

TEST_F(EventStreamTest, AConnectionThatWasLostIsMadeSureOf) {
  replay();
  publish({stored(1)});
  publish({stored(2)});
  stream_.reconnected();
  EXPECT_EQ(stream_.wanted(), 1U);
  EXPECT_EQ(stream_.trust(), Trust::kReplaying);
  publish({packed_removed({1})}, false);
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(!held(1) && held(2));
}

TEST_F(EventStreamTest, WhatWaitsIsBounded) {
  EventStream::Options few = options(true);
  few.max_waiting_batches = 4;
  EventStream stream(chain_, budget_, "base", few);
  for (std::uint64_t block = 1; block <= 50; ++block) {
    publish({stored(block)}, false);
    stream.published(block - 1, log_.back(), held_);
  }
  for (int i = 0; i < 3 && stream.wanted(); ++i) {
    const std::uint64_t from = *stream.wanted();
    stream.replay_begun();
    for (std::uint64_t n = from; n < log_.size(); ++n) {
      EXPECT_TRUE(stream.replayed(n, log_[n], held_));
    }
    stream.replay_ended(held_);
  }
  EXPECT_EQ(stream.trust(), Trust::kTrusted);
  EXPECT_EQ(held_.all().size(), 50U);
}

// Case D63.
TEST_F(WithoutReplay, ANumberThatFallsIsARestart) {
  batch(alone_, 800, {stored(1)});
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  EXPECT_TRUE(held(1));
  batch(alone_, 0, {stored(7)});
  EXPECT_TRUE(!held(1) && held(7));
  EXPECT_EQ(alone_.trust(), Trust::kTrusted);
  EXPECT_EQ(alone_.counts().restarts, 1U);
}

// Case D62, with nobody to ask: what is known is forgotten, since removals may be among the missed.
TEST_F(WithoutReplay, AGapIsALoss) {
  batch(alone_, 1, {stored(1), stored(2)});
  batch(alone_, 2, {packed_removed({2})});
  batch(alone_, 5, {stored(9)});
  EXPECT_TRUE(!held(1) && held(9));
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  EXPECT_FALSE(alone_.wanted().has_value());
}

// Case D65.
TEST_F(WithoutReplay, TheSameBatchTwiceCountsOnce) {
  const std::string first = packed_batch({stored(1)});
  alone_.published(1, first, held_);
  alone_.published(1, first, held_);
  batch(alone_, 2, {packed_removed({1})});
  EXPECT_FALSE(held(1));
  batch(alone_, 3, {packed_removed({1})});
  EXPECT_TRUE(held_.all().empty());
  EXPECT_EQ(alone_.counts().duplicates, 1U);
  EXPECT_EQ(alone_.counts().restarts, 0U);
  EXPECT_EQ(alone_.blocks().gpu_blocks(), 0U);
  // Of another server, which never had it.
  EventStream other(chain_, budget_, "base", options(false));
  batch(other, 1, {packed_removed({1})});
  EXPECT_EQ(other.blocks().gpu_blocks(), 0U);
}

TEST_F(WithoutReplay, AnOlderBatchAgainIsNoRestart) {
  std::vector<std::string> batches;
  for (std::uint64_t n = 0; n < 4; ++n) {
    batches.push_back(packed_batch({stored(n + 1)}, ++time_));
    alone_.published(n, batches.back(), held_);
  }
  alone_.published(1, batches[1], held_);
  EXPECT_EQ(alone_.counts().restarts, 0U);
  EXPECT_EQ(held_.all().size(), 4U);
  EXPECT_EQ(alone_.trust(), Trust::kTrusted);
}

TEST_F(EventStreamTest, ARestartInTheMiddleIsReplayedFromItsBeginning) {
  replay();
  for (std::uint64_t block = 1; block <= 5; ++block) publish({stored(block)});
  restart_engine();
  publish({stored(11)}, false);
  publish({stored(12)});
  EXPECT_EQ(stream_.wanted(), 0U);
  EXPECT_TRUE(held_.all().empty());
  replay();
  EXPECT_TRUE(held(11) && held(12) && !held(1));
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_EQ(stream_.counts().restarts, 1U);
}

// The new engine has counted past the old one's numbers before anything of it is heard.
TEST_F(EventStreamTest, ARestartThatLooksLikeAGapIsFoundOut) {
  replay();
  for (std::uint64_t block = 1; block <= 3; ++block) publish({stored(block)});
  restart_engine();
  for (std::uint64_t block = 11; block <= 17; ++block) publish({stored(block)}, false);
  publish({stored(18)});
  EXPECT_EQ(stream_.wanted(), 2U);
  replay();  // The batch with the last number that was seen is another one.
  EXPECT_EQ(stream_.wanted(), 0U);
  EXPECT_TRUE(held_.all().empty());
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_TRUE(!held(1) && held(11) && held(18));
  EXPECT_EQ(stream_.counts().restarts, 1U);
}

TEST_F(EventStreamTest, AReplicaThatComesBackIsTheSameOrAnotherOne) {
  replay();
  for (std::uint64_t block = 1; block <= 3; ++block) publish({stored(block)});
  HeldKeys forgot;
  std::swap(held_, forgot);
  stream_.revive(held_);
  EXPECT_EQ(held_.all(), forgot.all());
  EXPECT_EQ(stream_.trust(), Trust::kReplaying);
  replay();
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
  EXPECT_EQ(stream_.counts().restarts, 0U);

  // Now it has restarted, and has not come as far.
  restart_engine();
  publish({stored(11)}, false);
  stream_.revive(held_);
  replay();
  EXPECT_TRUE(held_.all().empty());
  replay();
  EXPECT_TRUE(held(11));
  EXPECT_EQ(stream_.trust(), Trust::kTrusted);
}

TEST_F(WithoutReplay, AReplicaThatComesBackProvesItselfByTheNextNumber) {
  batch(alone_, 0, {stored(1)});
  alone_.revive(held_);
  EXPECT_TRUE(held(1));
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  batch(alone_, 1, {stored(2)});
  EXPECT_EQ(alone_.trust(), Trust::kTrusted);
}

// What is known to be there fills the cache: there is room for little else.
TEST_F(WithoutReplay, AGapIsClosedOnceTheCacheIsFilledAnew) {
  alone_.set_engine(10, true);
  batch(alone_, 50, {stored(1)});
  for (std::uint64_t n = 2; n <= 8; ++n) batch(alone_, 49 + n, {stored(n)});
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  batch(alone_, 58, {packed_removed({1}), stored(9)});
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  batch(alone_, 59, {stored(10)});
  EXPECT_EQ(alone_.trust(), Trust::kTrusted);
}

TEST_F(WithoutReplay, EventsThatDoNotFitTogetherAreNotTrusted) {
  batch(alone_, 0, {stored(1)});
  std::uint64_t number = 1;
  for (std::uint64_t i = 0; i < 20; ++i) {
    batch(alone_, number++,
          {packed({.blocks = {1'000 + i},
                   .parent = 5'000 + i,
                   .tokens = std::vector<std::uint32_t>(16, 3)})});
  }
  EXPECT_EQ(alone_.trust(), Trust::kTrusted);
  for (std::uint64_t i = 20; i < 30; ++i) {
    batch(alone_, number++,
          {packed({.blocks = {1'000 + i},
                   .parent = 5'000 + i,
                   .tokens = std::vector<std::uint32_t>(16, 3)})});
  }
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  EXPECT_EQ(alone_.why(), "the events do not fit together");
}

TEST_F(WithoutReplay, ABatchThatCannotBeReadIsALoss) {
  batch(alone_, 0, {stored(1)});
  alone_.published(1, "no batch", held_);
  EXPECT_EQ(alone_.trust(), Trust::kGap);
  EXPECT_TRUE(held_.all().empty());
  EXPECT_EQ(alone_.counts().undecodable, 1U);
  batch(alone_, 2, {stored(2)});
  EXPECT_TRUE(held(2));
  EXPECT_EQ(alone_.counts().gaps, 0U);
}

TEST_F(WithoutReplay, WithoutACacheThereIsNothingToTrust) {
  alone_.set_engine(10, false);
  batch(alone_, 0, {stored(1)});
  EXPECT_EQ(alone_.trust(), Trust::kNone);
  EXPECT_EQ(alone_.why(), "the engine runs without a prefix cache");
}

TEST_F(WithoutReplay, WindowsAloneAreNotTrusted) {
  batch(alone_, 0,
        {packed({.blocks = {1},
                 .tokens = std::vector<std::uint32_t>(16, 3),
                 .group = 0,
                 .kind = "sliding_window"})});
  EXPECT_EQ(alone_.trust(), Trust::kNone);
}

}  // namespace
}  // namespace pointsman
