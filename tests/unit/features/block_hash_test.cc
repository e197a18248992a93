#include "features/block_hash.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

namespace pointsman {
namespace {

std::vector<BlockHash> chain(const std::vector<std::string>& pieces, std::uint32_t block_bytes,
                             std::uint64_t seed = 7) {
  BlockHasher hasher(block_bytes);
  std::vector<BlockHash> out;
  hasher.reset(seed, out);
  for (const std::string& piece : pieces) hasher.add(piece);
  return out;
}

std::string letters(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i * i % 26);
  return text;
}

TEST(BlockHasher, ChainsEachBlockToTheOneBefore) {
  const std::string text = letters(130);
  const std::uint64_t first = XXH3_64bits_withSeed(text.data(), 64, 7);
  const std::uint64_t second = XXH3_64bits_withSeed(text.data() + 64, 64, first);
  EXPECT_EQ(chain({text}, 64), (std::vector<BlockHash>{first, second}));
}

TEST(BlockHasher, SameChainForEverySplit) {
  const std::string text = letters(100);
  for (const std::uint32_t block_bytes : {1U, 7U, 64U, 100U, 101U}) {
    const auto whole = chain({text}, block_bytes);
    EXPECT_EQ(whole.size(), text.size() / block_bytes);
    for (std::size_t a = 0; a <= text.size(); ++a) {
      for (std::size_t b = a; b <= text.size(); b += 13) {
        EXPECT_EQ(chain({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, block_bytes),
                  whole);
      }
    }
  }
}

TEST(BlockHasher, ChainsPartAtTheFirstBlockThatDiffers) {
  const std::string text = letters(640);
  std::string other = text;
  other[200] = '!';
  const auto a = chain({text}, 64);
  const auto b = chain({other}, 64);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i] == b[i], i < 200 / 64) << i;
}

TEST(BlockHasher, SeedsOfDifferentWorldsGiveDifferentChains) {
  EXPECT_NE(chain_seed("base", ""), chain_seed("base-adapter-7", ""));
  EXPECT_NE(chain_seed("base", ""), chain_seed("base", "tenant-2"));
  EXPECT_NE(chain_seed("ab", "c"), chain_seed("a", "bc"));
  EXPECT_NE(chain({letters(64)}, 64, 1), chain({letters(64)}, 64, 2));
}

}  // namespace
}  // namespace pointsman
