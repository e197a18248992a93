#include "kv_events/engine_blocks.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "kv_events/event_decoder.h"
#include "support/event_payload.h"
#include "support/held_keys.h"

namespace pointsman {
namespace {

using test::HeldKeys;
using test::Pack;
using test::packed;
using test::packed_batch;
using test::packed_cleared;
using test::packed_removed;
using test::StoredEvent;
using Tokens = std::vector<std::uint32_t>;

Tokens tokens(std::uint32_t from, std::size_t count) {
  Tokens out(count);
  std::iota(out.begin(), out.end(), from);
  return out;
}

class EngineBlocksTest : public ::testing::Test {
 protected:
  EngineBlocksTest() { blocks_.set_world("base"); }

  void apply(std::initializer_list<std::string> events) { apply_to(blocks_, events); }
  void apply_to(EngineBlocks& blocks, std::initializer_list<std::string> events) {
    payloads_.push_back(packed_batch(events));
    EventBatch batch;
    ASSERT_TRUE(decode_event_batch(payloads_.back(), batch));
    ASSERT_EQ(batch.unreadable, 0U);
    for (const KvEvent& event : batch.events) blocks.apply(event, held_);
  }

  // The keys of a request, at every multiple of the router's block size.
  [[nodiscard]] std::vector<BlockHash> request(const Tokens& prompt,
                                               std::string_view world = "base",
                                               std::string_view salt = "",
                                               std::uint32_t block = 16) const {
    std::vector<BlockHash> keys;
    chain_.extend_blocks(chain_.start(world, salt), 0, prompt, block, keys);
    return keys;
  }

  TokenChain chain_{7};
  TableBudget budget_;
  EngineBlocks blocks_{chain_, budget_, {}};
  HeldKeys held_;
  std::vector<std::string> payloads_;
};

TEST_F(EngineBlocksTest, AStoredPrefixIsWhatARequestAsksFor) {
  apply({packed({.blocks = {11, 12}, .tokens = tokens(100, 32)})});
  apply({packed({.blocks = {13}, .parent = 12, .tokens = tokens(132, 16)})});
  EXPECT_EQ(held_.leading(request(tokens(100, 48))), 3U);
  EXPECT_EQ(held_.leading(request(tokens(100, 40))), 2U);
  EXPECT_EQ(held_.leading(request(tokens(101, 48))), 0U);
  apply({packed_removed({13})});
  EXPECT_EQ(held_.leading(request(tokens(100, 48))), 2U);
  EXPECT_EQ(blocks_.blocks(), 2U);
  apply({packed_cleared()});
  EXPECT_TRUE(held_.all().empty());
  EXPECT_EQ(blocks_.gpu_blocks(), 0U);
}

// Blocks of any size become known at the multiples of ours that they cover, and go with them.
TEST_F(EngineBlocksTest, EnginesWithOtherBlockSizes) {
  for (const std::uint32_t size : {1U, 2U, 8U, 16U, 24U, 32U, 48U, 64U, 256U}) {
    EngineBlocks blocks(chain_, budget_, {});
    blocks.set_world("base");
    const std::size_t count = 1'536 / size;
    const Tokens prompt = tokens(5, count * size);
    std::vector<std::uint64_t> hashes(count);
    std::iota(hashes.begin(), hashes.end(), 1'000U);
    for (std::size_t i = 0; i < count; ++i) {
      StoredEvent event{.blocks = {hashes[i]},
                        .tokens = {prompt.begin() + i * size, prompt.begin() + (i + 1) * size}};
      if (i > 0) event.parent = hashes[i - 1];
      event.block_tokens = size;
      apply_to(blocks, {packed(event)});
    }
    const std::vector<BlockHash> keys = request(prompt);
    EXPECT_EQ(held_.leading(keys), prompt.size() / 16) << size;
    EXPECT_EQ(held_.all().size(), prompt.size() / 16) << size;
    // The last block away: all of ours that reach into it are gone.
    apply_to(blocks, {packed_removed({hashes.back()})});
    EXPECT_EQ(held_.leading(keys), (prompt.size() - size) / 16) << size;
    hashes.pop_back();
    apply_to(blocks, {packed_removed(hashes)});
    EXPECT_TRUE(held_.all().empty()) << size;
    EXPECT_EQ(blocks.blocks(), 0U);
  }
}

// Prompts that part within a block of the engine's have a key of ours in common, which is there as
// long as one of the two blocks is.
TEST_F(EngineBlocksTest, AKeyStaysUntilTheLastBlockThatCoversItIsGone) {
  const auto parting = [](std::uint32_t end) {
    Tokens prompt = tokens(0, 24);
    prompt.resize(32, end);
    return prompt;
  };
  apply({packed({.blocks = {1}, .tokens = parting(7), .block_tokens = 32})});
  apply({packed({.blocks = {2}, .tokens = parting(8), .block_tokens = 32})});
  apply({packed({.blocks = {3}, .tokens = parting(9), .block_tokens = 32})});
  apply({packed_removed({1})});
  EXPECT_EQ(held_.leading(request(parting(7))), 1U);
  EXPECT_EQ(held_.leading(request(parting(8))), 2U);
  EXPECT_EQ(budget_.used, blocks_.bytes());
  // What has forgotten all is told, and counts, anew.
  held_.clear();
  blocks_.tell_all(held_);
  apply({packed_removed({2})});
  EXPECT_EQ(held_.leading(request(parting(9))), 2U);
  apply({packed_removed({3})});
  EXPECT_TRUE(held_.all().empty());
  apply({packed_cleared()});
  EXPECT_EQ(budget_.used, 0U);
}

TEST_F(EngineBlocksTest, AdaptersAndSaltsAreWorldsOfTheirOwn) {
  const Tokens prompt = tokens(1, 32);
  apply({packed({.blocks = {1, 2}, .tokens = prompt, .lora = "ad1"})});
  // In every block the adapter, in the first the salt, without tags and with them.
  const std::string bare =
      Pack().array(2).array(2).text("ad1").text("s").array(1).text("ad1").bytes();
  apply({packed({.blocks = {3, 4}, .tokens = prompt, .lora = "ad1", .extras = bare})});
  Pack tagged;
  tagged.array(2).array(1).array(2).text("cache_salt").text("t").nil();
  apply({packed({.blocks = {5, 6}, .tokens = prompt, .extras = tagged.bytes()})});
  EXPECT_EQ(held_.leading(request(prompt)), 0U);
  EXPECT_EQ(held_.leading(request(prompt, "ad1")), 2U);
  EXPECT_EQ(held_.leading(request(prompt, "ad1", "s")), 2U);
  EXPECT_EQ(held_.leading(request(prompt, "base", "s")), 0U);
  EXPECT_EQ(held_.leading(request(prompt, "base", "t")), 2U);
  EXPECT_EQ(held_.leading(request(prompt, "ad1", "t")), 0U);
}

TEST_F(EngineBlocksTest, FromAPictureOnNothingIsHeldButFollowersAreNoStrangers) {
  Pack extras;
  extras.array(3).nil().array(1).array(2).text("picture").whole(3).nil();
  apply({packed({.blocks = {1, 2, 3}, .tokens = tokens(0, 48), .extras = extras.bytes()})});
  apply({packed({.blocks = {4}, .parent = 3, .tokens = tokens(48, 16)})});
  EXPECT_EQ(held_.leading(request(tokens(0, 64))), 1U);
  EXPECT_EQ(held_.all().size(), 1U);
  EXPECT_EQ(blocks_.counts().left_out, 3U);
  EXPECT_EQ(blocks_.counts().unplaced, 0U);
  EXPECT_EQ(blocks_.gpu_blocks(), 4U);
  apply({packed_removed({4, 3, 2, 1})});
  EXPECT_EQ(blocks_.blocks(), 0U);
  EXPECT_TRUE(held_.all().empty());
}

TEST_F(EngineBlocksTest, AnAdapterWithoutANameIsLeftOut) {
  Pack event;
  event.array(7).text("BlockStored").array(1).whole(1).nil().array(16);
  for (int i = 0; i < 16; ++i) event.whole(1);
  event.whole(16).whole(4).text("GPU");
  apply({event.bytes()});
  EXPECT_TRUE(held_.all().empty());
  EXPECT_EQ(blocks_.counts().left_out, 1U);
}

TEST_F(EngineBlocksTest, BlocksBehindAnUnknownParentAreCounted) {
  apply({packed({.blocks = {2}, .parent = 1, .tokens = tokens(0, 16)})});
  apply({packed({.blocks = {3}, .parent = 2, .tokens = tokens(16, 16)})});
  EXPECT_EQ(blocks_.counts().unplaced, 2U);
  EXPECT_TRUE(held_.all().empty());
  apply({packed_removed({2, 3, 99})});
  EXPECT_EQ(blocks_.gpu_blocks(), 0U);
}

// Two requests that compute the same block at once: it is gone when the second copy is.
TEST_F(EngineBlocksTest, CopiesAreCounted) {
  const std::string stored = packed({.blocks = {1}, .tokens = tokens(0, 16)});
  apply({stored, stored});
  EXPECT_EQ(blocks_.gpu_blocks(), 2U);
  apply({packed_removed({1})});
  EXPECT_EQ(held_.all().size(), 1U);
  apply({packed_removed({1})});
  EXPECT_TRUE(held_.all().empty());
  apply({packed_removed({1})});
  EXPECT_EQ(blocks_.gpu_blocks(), 0U);
}

TEST_F(EngineBlocksTest, TiersAreApart) {
  const Tokens prompt = tokens(0, 16);
  const BlockHash key = request(prompt)[0];
  apply({packed({.blocks = {1}, .tokens = prompt})});
  // Offloading to host memory may name the block by its hash alone.
  apply({packed({.blocks = {1}, .tokens = {}, .medium = "CPU"})});
  EXPECT_TRUE(held_.holds(key, Tier::kGpu));
  EXPECT_TRUE(held_.holds(key, Tier::kCpu));
  apply({packed_removed({1})});
  EXPECT_FALSE(held_.holds(key, Tier::kGpu));
  EXPECT_TRUE(held_.holds(key, Tier::kCpu));
  // What follows is placed behind it all the same.
  apply({packed({.blocks = {2}, .parent = 1, .tokens = tokens(16, 16), .medium = "DISK"})});
  EXPECT_EQ(held_.all(Tier::kDisk).size(), 1U);
  apply({packed_removed({1}, "CPU"), packed_removed({2}, "DISK")});
  EXPECT_EQ(blocks_.blocks(), 0U);
  apply({packed({.blocks = {7}, .tokens = {}, .medium = "CPU"})});
  EXPECT_EQ(blocks_.counts().unplaced, 1U);
}

TEST_F(EngineBlocksTest, MediaAsEnginesNameThem) {
  for (const char* const name : {"", "GPU", "gpu", "HBM", "device"}) {
    EXPECT_EQ(tier_of(name), Tier::kGpu) << name;
  }
  for (const char* const name : {"CPU", "CPU_PINNED", "CPU_TIER1", "HOST", "DRAM"}) {
    EXPECT_EQ(tier_of(name), Tier::kCpu) << name;
  }
  for (const char* const name : {"DISK", "EXTERNAL", "STORAGE", "REMOTE", "?"}) {
    EXPECT_EQ(tier_of(name), Tier::kDisk) << name;
  }
}

// Of a hybrid model only the group of whole prefixes counts, whichever comes first.
TEST_F(EngineBlocksTest, WindowsOfHybridModelsDoNotCount) {
  const Tokens prompt = tokens(0, 16);
  const auto stored = [&](std::uint64_t group, const char* kind) {
    return packed({.blocks = {1}, .tokens = prompt, .group = group, .kind = kind});
  };
  apply({stored(0, "sliding_window")});
  EXPECT_TRUE(held_.all().empty());
  EXPECT_TRUE(blocks_.only_windows());
  apply({stored(1, "full_attention"), stored(2, "mamba")});
  EXPECT_EQ(held_.all().size(), 1U);
  EXPECT_FALSE(blocks_.only_windows());
  EXPECT_EQ(blocks_.gpu_blocks(), 3U);
  // The window moved on; the prefix is still there.
  apply({packed_removed({1}, "GPU", 0), packed_removed({1}, "GPU", 2)});
  EXPECT_EQ(held_.all().size(), 1U);
  EXPECT_EQ(blocks_.gpu_blocks(), 1U);
  apply({packed_removed({1}, "GPU", 1)});
  EXPECT_TRUE(held_.all().empty());
}

// As SGLang's hashes once were: of a page's own tokens, wherever it stands.
TEST_F(EngineBlocksTest, AHashThatStandsForTwoPrefixesIsAConflict) {
  apply({packed({.blocks = {1}, .tokens = tokens(0, 16)})});
  apply({packed({.blocks = {1}, .parent = 1, .tokens = tokens(0, 16)})});
  EXPECT_EQ(blocks_.counts().conflicts, 1U);
  EXPECT_EQ(held_.all().size(), 1U);
  EXPECT_EQ(held_.leading(request(tokens(0, 16))), 0U);
}

TEST_F(EngineBlocksTest, AllCanBeToldOnceMore) {
  apply({packed({.blocks = {1, 2}, .tokens = tokens(0, 32)})});
  apply({packed({.blocks = {2}, .tokens = {}, .medium = "CPU"})});
  HeldKeys again;
  blocks_.tell_all(again);
  EXPECT_EQ(again.all(), held_.all());
  EXPECT_EQ(again.all(Tier::kCpu), held_.all(Tier::kCpu));
}

TEST_F(EngineBlocksTest, MemoryIsRefusedAtTheBudget) {
  budget_.max_bytes = 20'000;
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    apply({packed({.blocks = {i + 1}, .tokens = tokens(i, 16)})});
  }
  EXPECT_GT(blocks_.counts().refused, 0U);
  EXPECT_LE(budget_.used, budget_.max_bytes);
  EXPECT_EQ(budget_.used, blocks_.bytes());
  EXPECT_EQ(held_.all().size(), blocks_.blocks());
  blocks_.clear(held_);
  EXPECT_EQ(budget_.used, 0U);
}

// The table against std::map, through growth, collisions and removals.
TEST(BlockTable, AgreesWithAMap) {
  TableBudget budget;
  BlockTable table(2, 3, budget);
  std::map<EngineHash, BlockHash> model;
  Rng rng(1);
  for (int step = 0; step < 60'000; ++step) {
    const EngineHash hash = rng.below(3'000);
    const std::optional<BlockTable::Place> place = table.find(hash);
    ASSERT_EQ(place.has_value(), model.contains(hash));
    if (place) {
      ASSERT_EQ(table.keys(*place)[1], model[hash]);
      ASSERT_EQ(table.facts(*place).phase, model[hash] % 200);
      if (rng.below(2) == 0) {
        table.erase(*place);
        model.erase(hash);
      }
    } else {
      const BlockHash key = rng();
      const BlockTable::Place fresh = *table.insert(hash, std::nullopt);
      table.keys(fresh)[1] = key;
      BlockTable::Facts facts;
      facts.phase = static_cast<std::uint8_t>(key % 200);
      facts.copies = 1;
      table.set_facts(fresh, facts);
      model[hash] = key;
    }
  }
  EXPECT_EQ(table.size(), model.size());
  std::size_t seen = 0;
  table.for_each([&](BlockTable::Place) { ++seen; });
  EXPECT_EQ(seen, model.size());
  EXPECT_EQ(budget.used, table.bytes());
}

// At every number of blocks on the way. With the index's 20.5 bytes these are at most 48.
TEST(BlockTable, TakesAtMost27AndAHalfBytesABlock) {
  TableBudget budget;
  BlockTable table(1, 3, budget);
  Rng rng(1);
  for (std::size_t i = 1; i <= 300'000; ++i) {
    ASSERT_TRUE(table.insert(rng(), std::nullopt));
    if (i < 20'000) continue;
    ASSERT_LE(static_cast<double>(table.bytes()), 27.5 * static_cast<double>(i)) << i;
  }
}

// The hash that is mixed to `mixed` by a table of seed 0: splitmix64's finaliser, backwards.
EngineHash unmixed(std::uint64_t mixed) {
  std::uint64_t z = mixed ^ (mixed >> 31) ^ (mixed >> 62);
  z *= 0x3196'42B2'D24D'8EC3;
  z ^= (z >> 27) ^ (z >> 54);
  z *= 0x96DE'1B17'3F11'9089;
  return z ^ (z >> 30) ^ (z >> 60);
}

// Hashes that all belong to the table's last place, or all to its first.
TEST(BlockTable, HashesThatMeetInOnePlaceAreKeptAndFound) {
  for (const std::uint64_t tag : {std::uint64_t{0xFFFF'FFFF}, std::uint64_t{1}}) {
    TableBudget budget;
    BlockTable table(1, 0, budget);
    constexpr std::uint64_t kHashes = 1'000;
    for (std::uint64_t i = 0; i < kHashes; ++i) {
      const std::optional<BlockTable::Place> place =
          table.insert(unmixed((tag << 32) + i), std::nullopt);
      ASSERT_TRUE(place);
      table.keys(*place)[0] = i;
    }
    for (std::uint64_t i = 0; i < kHashes; i += 2) {
      table.erase(*table.find(unmixed((tag << 32) + i)));
    }
    for (std::uint64_t i = 0; i < kHashes; ++i) {
      const std::optional<BlockTable::Place> place = table.find(unmixed((tag << 32) + i));
      ASSERT_EQ(place.has_value(), i % 2 == 1);
      if (place) {
        ASSERT_EQ(table.keys(*place)[0], i);
      }
    }
    EXPECT_EQ(table.size(), kHashes / 2);
  }
}

}  // namespace
}  // namespace pointsman
