// What an engine's events come to in EngineCaches, which searches by bisection where it was told
// that nothing is left behind a removed block, against a plain set of what is held.

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/engine_caches.h"
#include "kv_events/event_stream.h"
#include "support/event_payload.h"
#include "support/held_keys.h"

namespace pointsman {
namespace {

using Tokens = std::vector<std::uint32_t>;

class Both : public CacheChanges {
 public:
  void store(Tier tier, std::optional<BlockHash> before, std::span<const BlockHash> keys,
             std::vector<BlockHash>& again) override {
    held.store(tier, before, keys, again);
    std::vector<BlockHash> same;
    EXPECT_TRUE(caches.store({0, 0, tier}, before, keys, &same));
    EXPECT_EQ(same, again);
  }
  void remove(Tier tier, std::span<const BlockHash> keys, bool tails) override {
    held.remove(tier, keys, tails);
    caches.remove({0, 0, tier}, keys, tails);
    whole = whole && tails;
  }
  void clear() override {
    held.clear();
    caches.clear(0, 0);
  }

  test::HeldKeys held;
  EngineCaches caches{EngineCaches::Options{}};
  bool whole = true;  // nothing was ever left behind a removed block
};

// The tokens of a block. Words differ in the last quarter of theirs, so that prompts part within
// the engine's blocks.
void append_word(std::uint32_t word, std::uint32_t block_tokens, Tokens& out) {
  for (std::uint32_t t = 0; t < block_tokens; ++t) {
    out.push_back(t < block_tokens - (block_tokens + 3) / 4 ? t : word * 1'000 + t);
  }
}

// An engine whose prompts are words of a small alphabet of blocks, so that they share beginnings.
class Engine {
 public:
  Engine(std::uint32_t block_tokens, std::uint64_t seed) : block_(block_tokens), rng_(seed) {}

  // Serves a prompt: what is missing of it is stored. Returns the events.
  std::vector<std::string> serve(const std::vector<std::uint32_t>& words, const char* medium) {
    std::vector<std::string> events;
    std::uint64_t hash = 0;
    test::StoredEvent stored;
    stored.medium = medium;
    stored.block_tokens = block_;
    for (const std::uint32_t word : words) {
      const std::uint64_t parent = hash;
      hash = (hash ^ word) * 0x9E37'79B9'7F4A'7C15 + 1;
      if (std::ranges::find(held_, hash) != held_.end()) continue;
      if (stored.blocks.empty() && parent != 0) stored.parent = parent;
      if (!stored.blocks.empty() && stored.blocks.back() != parent) continue;
      stored.blocks.push_back(hash);
      append_word(word, block_, stored.tokens);
      held_.push_back(hash);
      parents_[hash] = parent;
      words_[hash] = word;
    }
    if (!stored.blocks.empty()) events.push_back(test::packed(stored));
    return events;
  }

  // Evicts one block: a tail, or with `any` whichever.
  std::string evict(bool any, const char* medium) {
    for (;;) {
      const auto at = std::next(held_.begin(), static_cast<long>(rng_.below(held_.size())));
      const bool tail =
          std::ranges::none_of(held_, [&](std::uint64_t other) { return parents_[other] == *at; });
      if (!tail && !any) continue;
      const std::uint64_t hash = *at;
      held_.erase(at);
      return test::packed_removed({hash}, medium);
    }
  }
  [[nodiscard]] std::size_t size() const { return held_.size(); }

  // The keys at all multiples of 16 tokens that lie in blocks which are held.
  [[nodiscard]] std::set<BlockHash> keys(const TokenChain& chain) const {
    std::set<BlockHash> all;
    for (const std::uint64_t hash : held_) {
      std::vector<std::uint32_t> path;
      for (std::uint64_t at = hash; at != 0; at = parents_.at(at)) path.push_back(words_.at(at));
      Tokens prompt;
      for (std::size_t i = path.size(); i-- > 0;) append_word(path[i], block_, prompt);
      std::vector<BlockHash> way;
      chain.extend_blocks(chain.start("base", ""), 0, prompt, 16, way);
      all.insert(way.begin() + static_cast<long>((prompt.size() - block_) / 16), way.end());
    }
    return all;
  }

 private:
  const std::uint32_t block_;
  Rng rng_;
  std::list<std::uint64_t> held_;
  std::map<std::uint64_t, std::uint64_t> parents_;
  std::map<std::uint64_t, std::uint32_t> words_;
};

void compare(std::uint32_t block_tokens, bool any_evicted, const char* medium) {
  const TokenChain chain(7);
  TableBudget budget;
  EventStream::Options options;
  options.can_replay = false;
  EventStream stream(chain, budget, "base", options);
  Both both;
  both.caches.set_trust(0, Trust::kTrusted);
  Engine engine(block_tokens, 5);
  Rng rng(block_tokens);
  std::uint64_t number = 0;
  for (int step = 0; step < 300; ++step) {
    std::vector<std::uint32_t> words(1 + rng.below(12));
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(1 + rng.below(2));
    for (const std::string& event : engine.serve(words, medium)) {
      stream.published(number++, test::packed_batch({event}), both);
    }
    while (engine.size() > 60) {
      stream.published(number++, test::packed_batch({engine.evict(any_evicted, medium)}), both);
    }
    if (step % 97 == 96) {
      both.caches.forget_blocks(0);
      both.caches.set_trust(0, Trust::kTrusted);
      stream.revive(both);
    }
    Tokens prompt;
    for (const std::uint32_t word : words) append_word(word, block_tokens, prompt);
    const bool host = std::string_view(medium) == "CPU";
    ASSERT_EQ(both.held.all(host ? Tier::kCpu : Tier::kGpu), engine.keys(chain))
        << "step " << step << " block " << block_tokens;
    std::vector<BlockHash> keys;
    chain.extend_blocks(chain.start("base", ""), 0, prompt, 16, keys);
    std::size_t held = 0;
    while (held < keys.size() &&
           (both.held.holds(keys[held], Tier::kGpu) || both.held.holds(keys[held], Tier::kCpu))) {
      ++held;
    }
    std::vector<EngineCaches::Match> matches;
    both.caches.match(keys, TimePoint{} + std::chrono::hours(1), matches);
    ASSERT_EQ(matches.empty() ? 0U : matches[0].length, held)
        << "step " << step << " block " << block_tokens;
  }
  EXPECT_TRUE(both.caches.consistent());
  EXPECT_TRUE(any_evicted || both.whole);
}

TEST(EventsIntoCaches, TailsFirstIsKnownAsSuchAndExact) {
  for (const std::uint32_t block : {1U, 8U, 16U, 24U, 32U, 64U}) compare(block, false, "GPU");
}

TEST(EventsIntoCaches, AnyOrderOfEvictionIsExact) {
  for (const std::uint32_t block : {16U, 24U, 32U, 64U}) compare(block, true, "GPU");
}

// Blocks of 24 tokens, two of which part behind a multiple of 16: its key stands for both.
TEST(EventsIntoCaches, AHoleWhoseKeyAnotherBlockStandsForIsStillAHole) {
  const TokenChain chain(7);
  TableBudget budget;
  EventStream::Options options;
  options.can_replay = false;
  EventStream stream(chain, budget, "base", options);
  Both both;
  both.caches.set_trust(0, Trust::kTrusted);
  constexpr std::uint32_t kTokens = 24;
  test::StoredEvent prompt{.blocks = {1, 2, 3, 4, 5, 6, 7}, .block_tokens = kTokens};
  for (std::size_t i = 0; i < prompt.blocks.size(); ++i) append_word(1, kTokens, prompt.tokens);
  test::StoredEvent beside{.blocks = {8}, .parent = 2, .block_tokens = kTokens};
  append_word(2, kTokens, beside.tokens);
  std::uint64_t number = 0;
  for (const std::string& event :
       {test::packed(prompt), test::packed(beside), test::packed_removed({3}, "GPU"),
        test::packed_removed({8}, "GPU")}) {
    stream.published(number++, test::packed_batch({event}), both);
  }
  std::vector<BlockHash> keys;
  chain.extend_blocks(chain.start("base", ""), 0, prompt.tokens, 16, keys);
  ASSERT_EQ(keys.size(), 10);
  EXPECT_FALSE(both.held.holds(keys[3], Tier::kGpu));
  EXPECT_TRUE(both.held.holds(keys[4], Tier::kGpu));
  std::vector<EngineCaches::Match> matches;
  both.caches.match(keys, TimePoint{} + std::chrono::hours(1), matches);
  ASSERT_EQ(matches.size(), 1);
  EXPECT_EQ(matches[0].length, 3);
}

TEST(EventsIntoCaches, HostMemoryIsExactToo) {
  compare(16, false, "CPU");
}

}  // namespace
}  // namespace pointsman
