#include "core/prefix_index.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/naive_prefix_index.h"

namespace pointsman {
namespace {

using test::NaivePrefixIndex;
using Chain = std::vector<BlockHash>;

constexpr ReplicaIndex kReplicas = 8;

// Conversations over a few system prompts: they grow by turns, are edited somewhere in the middle,
// are asked again from an earlier point, and end. Most turns go where the last one went.
class Conversations {
 public:
  struct Turn {
    Chain chain;
    std::uint64_t session;
    ReplicaIndex replica;
  };

  explicit Conversations(std::uint64_t seed) : rng_(seed) {
    for (int i = 0; i < 5; ++i) systems_.push_back(extended({}, 5 + rng_.below(40)));
  }

  Turn next() {
    if (live_.size() < 30 || rng_.below(20) == 0) {
      live_.push_back({extended(systems_[rng_.below(systems_.size())], 1 + rng_.below(20)), rng_(),
                       static_cast<ReplicaIndex>(rng_.below(kReplicas))});
      if (live_.size() > 60) live_.erase(live_.begin() + static_cast<int>(rng_.below(60)));
      return live_.back();
    }
    Turn& turn = live_[rng_.below(live_.size())];
    if (rng_.below(10) == 0) turn.replica = static_cast<ReplicaIndex>(rng_.below(kReplicas));
    switch (rng_.below(10)) {
      case 0:  // edited: all from some point on is new
        turn.chain.resize(1 + rng_.below(turn.chain.size()));
        turn.chain = extended(turn.chain, 1 + rng_.below(10));
        break;
      case 1: {  // only a part of it is sent, once
        Turn part = turn;
        part.chain.resize(1 + rng_.below(part.chain.size()));
        return part;
      }
      case 2:  // the same again
        break;
      default:
        turn.chain = extended(turn.chain, 1 + rng_.below(30));
    }
    return turn;
  }

 private:
  Chain extended(Chain chain, std::uint64_t blocks) {
    for (; blocks > 0; --blocks) chain.push_back(rng_());
    return chain;
  }

  Rng rng_;
  std::vector<Chain> systems_;
  std::vector<Turn> live_;
};

// Compares every replica's match length with the truth's.
struct Comparison {
  std::uint64_t asked = 0;
  std::uint64_t equal = 0;
  std::uint64_t more = 0;

  template <typename Truth>
  void add(const PrefixIndex& index, const Chain& chain, Truth&& truth) {
    PrefixMatches matches;
    index.match(chain, 0, matches);
    std::vector<std::uint32_t> found(kReplicas);
    for (const auto& holder : matches.holders) {
      EXPECT_EQ(found[holder.replica], 0U) << "a replica came twice";
      found[holder.replica] = holder.blocks;
    }
    for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
      const std::uint32_t expected = truth(replica);
      ++asked;
      if (found[replica] == expected) ++equal;
      if (found[replica] > expected) ++more;
    }
  }

  void expect_sound() const {
    EXPECT_EQ(more, 0U) << "of " << asked;
    EXPECT_GE(static_cast<double>(equal), 0.99 * static_cast<double>(asked));
  }
};

// Both ways in take turns.
void learn(PrefixIndex& index, const Conversations::Turn& turn, int i) {
  if (i % 2 == 0) return index.insert(turn.chain, turn.session, turn.replica);
  PrefixMatches matches;
  index.match(turn.chain, turn.session, matches);
  index.insert_matched(turn.chain, turn.session, turn.replica);
}

class PrefixIndexProperty : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, PrefixIndexProperty, testing::Range<std::uint64_t>(1, 7));

TEST_P(PrefixIndexProperty, UnboundedIndexKnowsTheTruth) {
  PrefixIndex index({});
  NaivePrefixIndex truth;
  Conversations conversations(GetParam());
  Comparison comparison;
  for (int i = 0; i < 3'000; ++i) {
    const auto turn = conversations.next();
    comparison.add(index, turn.chain, [&](ReplicaIndex r) { return truth.match(turn.chain, r); });
    PrefixMatches matches;
    index.match(turn.chain, turn.session, matches);
    ASSERT_EQ(matches.shared_blocks, truth.shared(turn.chain, turn.session));
    index.match(turn.chain, 0, matches);
    ASSERT_EQ(matches.shared_blocks, truth.shared(turn.chain, 0));
    learn(index, turn, i);
    truth.insert(turn.chain, turn.session, turn.replica);
    ASSERT_EQ(index.blocks(), truth.size());
  }
  EXPECT_EQ(comparison.equal, comparison.asked);
  EXPECT_TRUE(index.consistent());
}

TEST_P(PrefixIndexProperty, NeverMoreThanTheTruthWithinEachReplicasCapacity) {
  PrefixIndex index({});
  std::vector<NaivePrefixIndex> truth(kReplicas);
  Conversations conversations(GetParam());
  Rng rng(GetParam());
  const auto capacity = [](ReplicaIndex replica) { return 50U + 300U * replica; };
  for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
    index.set_capacity(replica, capacity(replica));
  }
  Comparison comparison;
  for (int i = 0; i < 5'000; ++i) {
    const auto turn = conversations.next();
    comparison.add(index, turn.chain,
                   [&](ReplicaIndex r) { return truth[r].match(turn.chain, r); });
    learn(index, turn, i);
    truth[turn.replica].insert(turn.chain, turn.session, turn.replica);
    truth[turn.replica].limit(capacity(turn.replica));
    if (rng.below(300) == 0) {
      const auto gone = static_cast<ReplicaIndex>(rng.below(kReplicas));
      index.forget(gone);
      truth[gone].forget(gone);
      index.set_capacity(gone, capacity(gone));
    }
    ASSERT_EQ(index.blocks(turn.replica), truth[turn.replica].size());
    if (i % 50 == 0) {
      ASSERT_TRUE(index.consistent());
    }
  }
  comparison.expect_sound();
  EXPECT_GT(index.evicted_blocks(), 10'000U);
}

// The truth holds the most recently used pairs, as many as the index does: what the index dropped
// for want of memory must have been the oldest.
TEST_P(PrefixIndexProperty, NeverMoreThanTheTruthWithinItsMemory) {
  constexpr std::size_t kBytes = 160 << 10;
  PrefixIndex index({.max_bytes = kBytes});
  NaivePrefixIndex truth;
  Conversations conversations(GetParam());
  Rng rng(GetParam());
  Comparison comparison;
  for (int i = 0; i < 8'000; ++i) {
    const auto turn = conversations.next();
    comparison.add(index, turn.chain, [&](ReplicaIndex r) { return truth.match(turn.chain, r); });
    learn(index, turn, i);
    truth.insert(turn.chain, turn.session, turn.replica);
    if (rng.below(500) == 0) {
      const auto gone = static_cast<ReplicaIndex>(rng.below(kReplicas));
      index.forget(gone);
      truth.forget(gone);
    }
    truth.limit(index.blocks());
    ASSERT_LE(index.bytes(), kBytes);
    if (i % 50 == 0) {
      ASSERT_TRUE(index.consistent());
    }
  }
  comparison.expect_sound();
  EXPECT_GT(index.evicted_blocks(), 10'000U);
}

}  // namespace
}  // namespace pointsman
