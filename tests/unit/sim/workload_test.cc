#include "sim/workload.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

WorkloadSpec spec() {
  WorkloadSpec made;
  made.first_prompt = {.median = 1'000, .sigma = 1.0};
  made.follow_up = {.median = 200, .sigma = 0.5};
  made.output = {.median = 100, .sigma = 1.0, .high = 1'500};
  made.document_share = 0.05;
  made.long_generation_share = 0.02;
  made.long_generation = {.median = 2'000, .sigma = 0};
  made.think_s = 8;
  return made;
}

TEST(Workload, SameSeedAndIndexGiveTheSameConversation) {
  const Conversation a = make_conversation(spec(), 7, 3);
  const Conversation b = make_conversation(spec(), 7, 3);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].new_tokens, b[i].new_tokens);
    EXPECT_EQ(a[i].output_tokens, b[i].output_tokens);
    EXPECT_EQ(a[i].think_s, b[i].think_s);
  }
  const Conversation c = make_conversation(spec(), 7, 4);
  EXPECT_NE(a[0].new_tokens, c[0].new_tokens);
}

TEST(Workload, FollowsItsLaws) {
  constexpr std::size_t kConversations = 40'000;
  std::vector<std::uint32_t> first;
  std::size_t turns = 0;
  std::size_t documents = 0;
  std::size_t long_generations = 0;
  double think = 0;
  for (std::size_t i = 0; i < kConversations; ++i) {
    const Conversation conversation = make_conversation(spec(), 1, i);
    turns += conversation.size();
    first.push_back(conversation[0].new_tokens);
    if (conversation[0].new_tokens >= 32'000) ++documents;
    for (const Turn& turn : conversation) {
      think += turn.think_s;
      if (turn.max_tokens == 16'384) {
        ++long_generations;
        EXPECT_EQ(turn.output_tokens, 2'000U);
      } else {
        EXPECT_LE(turn.output_tokens, 1'500U);
      }
    }
  }
  const auto all = static_cast<double>(turns);
  // Rounding to whole turns of at least 1 hardly moves the mean of 2.5: so 60 % are follow-ups.
  EXPECT_NEAR(all / kConversations, 2.5, 0.03);
  EXPECT_NEAR(1 - kConversations / all, 0.6, 0.005);
  EXPECT_NEAR(static_cast<double>(documents) / kConversations, 0.05, 0.004);
  EXPECT_NEAR(static_cast<double>(long_generations) / all, 0.02, 0.002);
  EXPECT_NEAR(think / all, 8, 0.15);
  std::nth_element(first.begin(), first.begin() + kConversations / 2, first.end());
  // With 5 % documents on top, the median of all is the law's 0.526 quantile: 1,000 · e^0.066.
  EXPECT_NEAR(first[kConversations / 2], 1'068, 40);
}

TEST(Workload, ExpectedTurnsAreThoseThatComeByEitherLaw) {
  for (const double mean : {1.0, 1.3, 2.5, 6.0}) {
    for (const TurnsLaw law : {TurnsLaw::kLognormal, TurnsLaw::kGeometric}) {
      WorkloadSpec made = spec();
      made.turns_law = law;
      made.turns_mean = mean;
      double turns = 0;
      constexpr int kConversations = 40'000;
      for (std::uint64_t i = 0; i < kConversations; ++i) {
        turns += ConversationScript(made, 3, i).turns_left();
      }
      // Five standard errors of a geometric law, the wider of the two.
      EXPECT_NEAR(turns / kConversations, made.expected_turns(),
                  5 * mean / std::sqrt(kConversations))
          << mean;
      if (law == TurnsLaw::kGeometric) {
        EXPECT_DOUBLE_EQ(made.expected_turns(), mean);
      }
    }
  }
}

TEST(Workload, SystemPromptsAreUsedByZipfsLaw) {
  WorkloadSpec made = spec();
  made.system_prompts = 3;
  made.system_zipf = 1;
  made.system_share = 0.5;
  made.system_prompt = {.median = 500, .sigma = 0.5};
  const SystemPrompts prompts(made, 9);
  ASSERT_EQ(prompts.count(), 3U);
  std::vector<double> uses(4, 0);
  constexpr int kConversations = 60'000;
  for (std::uint64_t i = 0; i < kConversations; ++i) {
    const std::uint32_t one = prompts.of_conversation(i);
    uses[one == SystemPrompts::kNone ? 3 : one] += 1.0 / kConversations;
  }
  // 1 : 1/2 : 1/3 of a half.
  EXPECT_NEAR(uses[0], 0.5 * 6 / 11, 0.01);
  EXPECT_NEAR(uses[1], 0.5 * 3 / 11, 0.01);
  EXPECT_NEAR(uses[2], 0.5 * 2 / 11, 0.01);
  EXPECT_NEAR(uses[3], 0.5, 0.01);
  EXPECT_NE(prompts.tokens(0), prompts.tokens(1));
  EXPECT_EQ(SystemPrompts(made, 9).tokens(0), prompts.tokens(0));
  EXPECT_EQ(SystemPrompts(spec(), 9).of_conversation(1), SystemPrompts::kNone);
}

TEST(Workload, DocumentsLieBetweenTheirBounds) {
  WorkloadSpec documents = spec();
  documents.document_share = 1;
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    const std::uint32_t tokens = make_conversation(documents, 5, i)[0].new_tokens;
    EXPECT_GE(tokens, 32'000U);
    EXPECT_LE(tokens, 110'000U);
  }
}

}  // namespace
}  // namespace pointsman::sim
