#include "proxy/retry_rules.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RetrySituation refused() {
  return {.failure = RetryReason::kRefused, .stateless = true, .other_candidate = true};
}
RetrySituation lost_after_sending() {
  return {.failure = RetryReason::kLost,
          .fully_sent = true,
          .stateless = true,
          .other_candidate = true};
}
bool allowed(const RetrySituation& situation) {
  return judge_retry(situation, {}).verdict == RetryVerdict::kRetry;
}
RetryDenied denial(const RetrySituation& situation) {
  const RetryJudgement judgement = judge_retry(situation, {});
  EXPECT_EQ(judgement.verdict, RetryVerdict::kDenied);
  return judgement.why;
}

TEST(RetryRules, ARequestHasTwoFurtherTries) {
  RetrySituation situation = refused();
  EXPECT_TRUE(allowed(situation));
  situation.retries = 1;
  EXPECT_TRUE(allowed(situation));
  situation.retries = 2;
  EXPECT_EQ(denial(situation), RetryDenied::kTries);
}

TEST(RetryRules, OnlyOneFurtherTryAfterALossWithTheRequestSent) {
  RetrySituation situation = lost_after_sending();
  EXPECT_TRUE(allowed(situation));
  situation.retries = situation.retries_after_sent = 1;
  EXPECT_EQ(denial(situation), RetryDenied::kTries);
  // A refused connection in between does not count against it.
  situation.retries_after_sent = 0;
  EXPECT_TRUE(allowed(situation));
}

TEST(RetryRules, ALostRequestThatMayHaveLeftSomethingBehindIsNotSentAgain) {
  RetrySituation situation = lost_after_sending();
  situation.stateless = false;
  EXPECT_EQ(denial(situation), RetryDenied::kNotSafe);
  situation.fully_sent = false;
  EXPECT_TRUE(allowed(situation));
  situation = refused();
  situation.stateless = false;
  EXPECT_TRUE(allowed(situation));
}

TEST(RetryRules, AnAnswerThatIsNoHttpFollowsTheRulesOfALoss) {
  RetrySituation situation = lost_after_sending();
  situation.failure = RetryReason::kBadAnswer;
  EXPECT_TRUE(allowed(situation));
  situation.stateless = false;
  EXPECT_EQ(denial(situation), RetryDenied::kNotSafe);
  situation.stateless = true;
  situation.retries = situation.retries_after_sent = 1;
  EXPECT_EQ(denial(situation), RetryDenied::kTries);
  EXPECT_TRUE(is_connection_failure(RetryReason::kBadAnswer));
}

TEST(RetryRules, NeedsTheWholeBodyAndAnotherReplica) {
  RetrySituation situation = refused();
  situation.body_whole = false;
  EXPECT_EQ(denial(situation), RetryDenied::kNotHeld);
  situation = refused();
  situation.other_candidate = false;
  EXPECT_EQ(denial(situation), RetryDenied::kNobody);
}

TEST(RetryBudget, AllowsTenRetriesWithoutTraffic) {
  RetryBudget budget{RetryOptions{}};
  const TimePoint now{seconds(1000)};
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(budget.take(now)) << i;
  EXPECT_FALSE(budget.take(now));
}

TEST(RetryBudget, AllowsAFifthOfTheLastTenSecondsRequests) {
  RetryBudget budget{RetryOptions{}};
  const TimePoint now{seconds(1000)};
  for (int i = 0; i < 500; ++i) budget.count_request(now + milliseconds(i));
  int taken = 0;
  while (budget.take(now + seconds(5))) ++taken;
  EXPECT_EQ(taken, 100);
  // Ten seconds later neither the requests nor the retries count any more.
  taken = 0;
  while (budget.take(now + seconds(16))) ++taken;
  EXPECT_EQ(taken, 10);
}

// Case D38 at its root: all requests fail, and tries stay near the number of requests.
TEST(RetryBudget, KeepsTriesNearTheRequestsWhenAllFail) {
  RetryBudget budget{RetryOptions{}};
  int tries = 0;
  for (int i = 0; i < 10'000; ++i) {
    const TimePoint now = TimePoint{seconds(1000)} + milliseconds(i * 5);
    budget.count_request(now);
    ++tries;
    for (int again = 0; again < 2 && budget.take(now); ++again) ++tries;
  }
  EXPECT_LT(tries, 12'100);
  EXPECT_GT(tries, 11'500);
}

}  // namespace
}  // namespace pointsman
