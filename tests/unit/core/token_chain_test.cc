#include "core/token_chain.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using Tokens = std::vector<std::uint32_t>;
using Strings = std::vector<std::string>;

// The definition in header words, with long multiplication bit by bit: nothing of the fast way is
// shared but the generator that the secret seeds.
class Definition {
 public:
  explicit Definition(std::uint64_t secret) {
    Rng rng(secret);
    while (k_ < (std::uint64_t{1} << 32) || k_ >= kPrime) k_ = rng() >> 3;
    whitening_ = rng();
  }

  [[nodiscard]] BlockHash operator()(const std::string& world, const std::string& salt,
                                     const Tokens& tokens) const {
    std::uint64_t state = 1;
    for (const std::string& part : {world, salt}) {
      for (const char c : part) state = next(state, static_cast<unsigned char>(c));
      state = next(state, std::uint64_t{1} << 32);
    }
    for (const std::uint32_t token : tokens) state = next(state, token);
    std::uint64_t z = state ^ whitening_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;

  [[nodiscard]] std::uint64_t next(std::uint64_t state, std::uint64_t value) const {
    std::uint64_t product = 0;
    for (std::uint64_t b = k_; b > 0; b >>= 1) {
      if ((b & 1) != 0) product = (product + state) % kPrime;
      state = 2 * state % kPrime;
    }
    return (product + value) % kPrime;
  }

  std::uint64_t k_ = 0;
  std::uint64_t whitening_ = 0;
};

Tokens random_tokens(Rng& rng, std::size_t count, std::uint64_t vocabulary) {
  Tokens tokens(count);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(rng.below(vocabulary));
  return tokens;
}

TEST(TokenChain, IsThePolynomialThatItsDefinitionSays) {
  Rng rng(11);
  for (std::uint64_t secret = 0; secret < 300; ++secret) {
    const TokenChain chain(secret);
    const Definition definition(secret);
    Tokens tokens = random_tokens(rng, rng.below(60), std::uint64_t{1} << 32);
    if (secret % 3 == 0) std::fill(tokens.begin(), tokens.end(), ~std::uint32_t{0});
    ASSERT_EQ(chain.extend(chain.start("model", "salt"), tokens),
              definition("model", "salt", tokens));
  }
}

TEST(TokenChain, KeyIsTheSameHoweverTheTokensAreParted) {
  const TokenChain chain(1);
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const Tokens tokens = random_tokens(rng, rng.below(70), std::uint64_t{1} << 32);
    BlockHash by_token = chain.start("m", "");
    for (const std::uint32_t token : tokens) by_token = chain.extend(by_token, token);
    const BlockHash at_once = chain.extend(chain.start("m", ""), tokens);
    const std::size_t cut = rng.below(tokens.size() + 1);
    const BlockHash in_two =
        chain.extend(chain.extend(chain.start("m", ""), std::span(tokens).first(cut)),
                     std::span(tokens).subspan(cut));
    ASSERT_EQ(at_once, by_token);
    ASSERT_EQ(in_two, by_token);
  }
}

TEST(TokenChain, BlocksAreTheKeysAtMultiplesOfTheirSizeWhereverTheTokensBegin) {
  const TokenChain chain(2);
  Rng rng(2);
  for (const std::uint32_t block : {1U, 2U, 5U, 16U, 32U}) {
    const Tokens tokens = random_tokens(rng, 150, 50'000);
    std::vector<BlockHash> expected;
    BlockHash hash = chain.start("m", "salt");
    std::vector<BlockHash> at{hash};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      at.push_back(hash = chain.extend(hash, tokens[i]));
      if ((i + 1) % block == 0) expected.push_back(hash);
    }
    for (std::size_t cut = 0; cut <= tokens.size(); cut += 7) {
      std::vector<BlockHash> blocks;
      const BlockHash middle =
          chain.extend_blocks(at[0], 0, std::span(tokens).first(cut), block, blocks);
      ASSERT_EQ(middle, at[cut]);
      ASSERT_EQ(chain.extend_blocks(middle, cut, std::span(tokens).subspan(cut), block, blocks),
                at.back());
      ASSERT_EQ(blocks, expected);
    }
  }
}

TEST(TokenChain, NoTwoOfMillionsOfChainsShareAKey) {
  const TokenChain chain(3);
  std::unordered_set<BlockHash> seen;
  seen.reserve(3'000'000);
  std::size_t chains = 0;
  // Every sequence of up to six tokens out of 0..8: short, alike, of zeros, permuted.
  std::vector<BlockHash> level{chain.start("m", "")};
  for (int length = 0; length <= 6; ++length) {
    std::vector<BlockHash> next;
    for (const BlockHash hash : level) {
      ++chains;
      seen.insert(hash);
      if (length == 6) continue;
      for (std::uint32_t token = 0; token < 9; ++token) next.push_back(chain.extend(hash, token));
    }
    level = std::move(next);
  }
  // Single tokens of a whole vocabulary, and long runs of one token.
  for (std::uint32_t token = 9; token < 1'000'000; ++token) {
    ++chains;
    seen.insert(chain.extend(chain.start("m", ""), token));
  }
  for (const std::uint32_t token : {9U, 10U, ~std::uint32_t{0}}) {
    BlockHash hash = chain.extend(chain.start("n", ""), token);
    for (int i = 0; i < 200'000; ++i) {
      hash = chain.extend(hash, token);
      ++chains;
      seen.insert(hash);
    }
  }
  EXPECT_GT(chains, 2'000'000U);
  EXPECT_EQ(seen.size(), chains);
}

TEST(TokenChain, ZerosAreTokensLikeOthers) {
  const TokenChain chain(4);
  std::set<BlockHash> seen;
  for (std::size_t zeros = 0; zeros < 2'000; ++zeros) {
    seen.insert(chain.extend(chain.start("", ""), Tokens(zeros, 0)));
  }
  EXPECT_EQ(seen.size(), 2'000U);
}

TEST(TokenChain, WorldsAndSaltsNeverMeet) {
  const TokenChain chain(5);
  const Tokens tokens{1, 2, 3};
  std::set<BlockHash> seen;
  std::size_t worlds = 0;
  for (const std::string& world :
       Strings{"", "m", "mm", "ms", "s", std::string(1, '\0'), "m\x01"}) {
    for (const std::string& salt :
         Strings{"", "m", "s", "ms", "sm", std::string(2, '\0'), "\xff"}) {
      ++worlds;
      seen.insert(chain.extend(chain.start(world, salt), tokens));
      seen.insert(chain.start(world, salt));
    }
  }
  EXPECT_EQ(seen.size(), 2 * worlds);
}

TEST(TokenChain, ThatDifferStayDifferentUnderTheSameContinuation) {
  const TokenChain chain(6);
  Rng rng(6);
  const Tokens rest = random_tokens(rng, 20'000, 128'000);
  BlockHash one = chain.extend(chain.start("m", ""), 17);
  BlockHash other = chain.extend(chain.start("m", ""), 18);
  for (const std::uint32_t token : rest) {
    one = chain.extend(one, token);
    other = chain.extend(other, token);
    ASSERT_NE(one, other);
  }
}

// One bit of one token, at any distance from the end: about half of the key's bits change, each of
// them about as often. 3,000 samples: the standard deviation of a bit's share is 0.009.
TEST(TokenChain, EveryBitOfTheKeyDependsOnEveryToken) {
  const TokenChain chain(7);
  Rng rng(7);
  std::vector<int> flipped(64);
  constexpr int kSamples = 3'000;
  int all = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    Tokens tokens = random_tokens(rng, 1 + rng.below(40), 128'000);
    const BlockHash before = chain.extend(chain.start("m", ""), tokens);
    tokens[rng.below(tokens.size())] ^= std::uint32_t{1} << rng.below(17);
    const BlockHash changed = before ^ chain.extend(chain.start("m", ""), tokens);
    all += std::popcount(changed);
    for (std::size_t bit = 0; bit < 64; ++bit) flipped[bit] += (changed >> bit & 1) != 0 ? 1 : 0;
  }
  EXPECT_NEAR(all / (64.0 * kSamples), 0.5, 0.01);
  for (const int count : flipped) EXPECT_NEAR(count / double{kSamples}, 0.5, 0.05);
}

// The last tokens 0, 1, 2, … are the most regular keys that there are: their low and their high
// bits fill the buckets of a table as evenly as chance would (chi-squared of 1,023 degrees of
// freedom: 1,023 with a standard deviation of 45).
TEST(TokenChain, RegularTokensFillATableEvenly) {
  const TokenChain chain(8);
  const BlockHash from = chain.extend(chain.start("m", ""), Tokens(31, 5));
  for (const int shift : {0, 27, 54}) {
    std::vector<double> buckets(1'024);
    for (std::uint32_t token = 0; token < 102'400; ++token) {
      ++buckets[chain.extend(from, token) >> shift & 1'023];
    }
    double chi_squared = 0;
    for (const double count : buckets) chi_squared += (count - 100) * (count - 100) / 100;
    EXPECT_NEAR(chi_squared, 1'023, 5 * 45.2) << shift;
  }
}

TEST(TokenChain, AnotherSecretGivesOtherKeys) {
  const Tokens tokens{1, 2, 3};
  std::set<BlockHash> seen;
  for (std::uint64_t secret = 0; secret < 1'000; ++secret) {
    const TokenChain chain(secret);
    seen.insert(chain.extend(chain.start("m", ""), tokens));
  }
  EXPECT_EQ(seen.size(), 1'000U);
  EXPECT_EQ(TokenChain(9).start("m", "s"), TokenChain(9).start("m", "s"));
}

TEST(TokenChain, NumbersThatAreNoKeysAreTakenToo) {
  const TokenChain chain(10);
  Rng rng(10);
  for (int i = 0; i < 1'000; ++i) {
    const BlockHash any = rng();
    const Tokens tokens = random_tokens(rng, 20, 128'000);
    BlockHash by_token = any;
    for (const std::uint32_t token : tokens) by_token = chain.extend(by_token, token);
    ASSERT_EQ(chain.extend(any, tokens), by_token);
  }
}

}  // namespace
}  // namespace pointsman
