#include "replica/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using ::testing::ElementsAre;

TEST(TokensOf, OneForEachFourBytes) {
  EXPECT_TRUE(tokens_of("").empty());
  EXPECT_THAT(tokens_of("abcd"), ElementsAre(0x64636261U));
  EXPECT_THAT(tokens_of("abcde"), ElementsAre(0x64636261U, 0x65U));
  EXPECT_EQ(tokens_of(std::string(4'000, 'x')).size(), 1'000U);
}

TEST(ChatTemplate, TheAnsweredConversationIsAPrefixOfItsNextTurn) {
  const AnswerText answer(42);
  std::string said;
  for (std::uint32_t i = 0; i < 50; ++i) said += answer.token(i);

  ChatTemplate first;
  first.add("system", "Be brief.");
  first.add("user", "Hello, router!");
  TokenIds before = tokens_of(first.finish());
  const TokenIds spoken = tokens_of(said);
  before.insert(before.end(), spoken.begin(), spoken.end());

  ChatTemplate second;
  second.add("system", "Be brief.");
  second.add("user", "Hello, router!");
  second.add("assistant", said);
  second.add("user", "And then?");
  const TokenIds after = tokens_of(second.finish());
  ASSERT_GT(after.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(BlockChain, CoversFullBlocksOnly) {
  const TokenIds tokens(47, 7);
  EXPECT_EQ(block_chain(tokens, 1).size(), 2U);
  EXPECT_EQ(block_chain(std::span(tokens).first(15), 1).size(), 0U);
}

TEST(BlockChain, EqualUpToTheFirstDifference) {
  TokenIds a(64, 7);
  TokenIds b = a;
  b[40] = 8;  // in the third block
  const auto left = block_chain(a, 1);
  const auto right = block_chain(b, 1);
  EXPECT_EQ(left[0], right[0]);
  EXPECT_EQ(left[1], right[1]);
  EXPECT_NE(left[2], right[2]);
  EXPECT_NE(left[3], right[3]);  // the same tokens behind another prefix
}

TEST(BlockChain, SeedsKeepModelsAndSaltsApart) {
  const TokenIds tokens(32, 7);
  EXPECT_NE(block_chain(tokens, 1)[0], block_chain(tokens, 2)[0]);
}

TEST(AnswerText, IsStableAndPlain) {
  const AnswerText answer(9);
  EXPECT_EQ(answer.token(3), AnswerText(9).token(3));
  EXPECT_NE(answer.token(3), answer.token(4));
  for (std::uint32_t i = 0; i < 200; ++i) {
    EXPECT_THAT(answer.token(i), ::testing::MatchesRegex("[a-z][a-z][a-z] "));
  }
}

TEST(DrawnAnswerTokens, HasTheStatedMedianAndBounds) {
  int below = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    const std::uint32_t tokens = drawn_answer_tokens(seed);
    EXPECT_GE(tokens, 1U);
    EXPECT_LE(tokens, 2'000U);
    if (tokens < 128) ++below;
  }
  EXPECT_NEAR(below, 5'000, 200);  // four standard deviations
}

}  // namespace
}  // namespace pointsman
