#include "core/ledger.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};
constexpr ReplicaIndex kA = 0;
constexpr ReplicaIndex kB = 1;

Charge book_stream(Ledger& ledger, ReplicaIndex replica, Cost cost) {
  return ledger.book(replica, cost, kStart, TimePoint{});
}

TEST(Ledger, ABookingCountsFromTheMomentItIsMade) {
  Ledger ledger;
  Charge charge = book_stream(ledger, kA, {100, 60});
  EXPECT_EQ(ledger[kA].in_flight, 1);
  EXPECT_EQ(ledger[kA].awaiting, 1);
  EXPECT_EQ(ledger[kA].prefill_tokens, 60);
  EXPECT_EQ(ledger[kA].prompt_tokens, 100);
  EXPECT_EQ(ledger[kB].in_flight, 0);
  ledger.release(std::move(charge));
}

TEST(Ledger, FirstTokenReleasesThePrefillPartAndKeepsTheRest) {
  Ledger ledger;
  Charge charge = book_stream(ledger, kA, {100, 60});
  EXPECT_TRUE(ledger.first_token(charge));
  EXPECT_EQ(ledger[kA].prefill_tokens, 0);
  EXPECT_EQ(ledger[kA].awaiting, 0);
  EXPECT_EQ(ledger[kA].in_flight, 1);
  EXPECT_EQ(ledger[kA].prompt_tokens, 100);
  EXPECT_FALSE(ledger.first_token(charge)) << "a second call must change nothing";
  EXPECT_EQ(ledger[kA].awaiting, 0);
  ledger.release(std::move(charge));
  EXPECT_EQ(ledger[kA].in_flight, 0);
  EXPECT_EQ(ledger[kA].prompt_tokens, 0);
}

TEST(Ledger, ReleaseWithoutAFirstTokenReturnsEverything) {
  Ledger ledger;
  ledger.release(book_stream(ledger, kA, {100, 60}));
  EXPECT_EQ(ledger[kA].in_flight, 0);
  EXPECT_EQ(ledger[kA].awaiting, 0);
  EXPECT_EQ(ledger[kA].prefill_tokens, 0);
  EXPECT_EQ(ledger[kA].prompt_tokens, 0);
}

TEST(Ledger, AChargeThatIsNotHeldIsIgnored) {
  Ledger ledger;
  Charge charge = book_stream(ledger, kA, {100, 60});
  Charge moved = std::move(charge);
  ledger.release(std::move(charge));  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ(ledger[kA].in_flight, 1);
  ledger.release(std::move(moved));
  ledger.release(Charge{});
  EXPECT_EQ(ledger[kA].in_flight, 0);
}

TEST(Ledger, WorkAheadIsWhatStoodThereAndTheChargesOwn) {
  Ledger ledger;
  Charge first = book_stream(ledger, kA, {1000, 700});
  Charge second = book_stream(ledger, kA, {500, 200});
  EXPECT_EQ(ledger.work_ahead(first), 700);
  EXPECT_EQ(ledger.work_ahead(second), 900);
  ledger.first_token(first);
  EXPECT_EQ(ledger.work_ahead(second), 900) << "as it was at booking";
  EXPECT_EQ(ledger.booked_at(second), kStart);
  EXPECT_EQ(ledger.cost(second).uncached_tokens, 200U);
  ledger.release(std::move(first));
  ledger.release(std::move(second));
}

TEST(Ledger, TellsThePeersOnlyOfReplicasWithRequests) {
  Ledger ledger;
  ledger.reserve(3);
  Charge first = book_stream(ledger, kB, {100, 60});
  Charge second = book_stream(ledger, kB, {200, 200});
  ledger.first_token(second);
  std::vector<PeerLoad> told;
  ledger.own_loads(told);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].replica, kB);
  EXPECT_EQ(told[0].in_flight, 2);
  EXPECT_EQ(told[0].prefill_tokens, 60);
  ledger.release(std::move(first));
  ledger.release(std::move(second));
  told.clear();
  ledger.own_loads(told);
  EXPECT_TRUE(told.empty());
}

TEST(Ledger, APeersNewSumsReplaceItsOldOnesAndNobodyElses) {
  Ledger ledger;
  const std::vector<PeerLoad> one = {{kA, 3, 1'000}, {kB, 1, 50}};
  const std::vector<PeerLoad> other = {{kA, 2, 500}};
  ledger.apply_peer(0, one);
  ledger.apply_peer(4, other);
  EXPECT_EQ(ledger[kA].peers_in_flight, 5);
  EXPECT_EQ(ledger[kA].peers_prefill_tokens, 1'500);
  EXPECT_EQ(ledger[kB].peers_prefill_tokens, 50);
  EXPECT_EQ(ledger[kA].in_flight, 0) << "they are not our own";
  const std::vector<PeerLoad> later = {{kA, 1, 10}};
  ledger.apply_peer(0, later);
  EXPECT_EQ(ledger[kA].peers_prefill_tokens, 510);
  EXPECT_EQ(ledger[kB].peers_in_flight, 0) << "what a peer does not name, it does not have";
  Charge charge = book_stream(ledger, kA, {100, 60});
  EXPECT_EQ(ledger[kA].all_prefill_tokens(), 570);
  EXPECT_EQ(ledger.work_ahead(charge), 570);
  std::vector<PeerLoad> told;
  ledger.own_loads(told);
  EXPECT_EQ(told.at(0).prefill_tokens, 60) << "a peer's sums are never told on";
  ledger.apply_peer(4, {});
  ledger.apply_peer(0, {});
  EXPECT_EQ(ledger[kA].all_prefill_tokens(), 60);
  EXPECT_EQ(ledger[kA].peers_in_flight, 0);
  ledger.release(std::move(charge));
}

TEST(Ledger, APeersSumsOfAReplicaThatIsForgottenGoWithIt) {
  Ledger ledger;
  const std::vector<PeerLoad> one = {{kA, 3, 1'000}, {kB, 1, 50}};
  ledger.apply_peer(0, one);
  ledger.forget_peers_of(kA);
  EXPECT_EQ(ledger[kA].peers_in_flight, 0);
  EXPECT_EQ(ledger[kB].peers_in_flight, 1);
  ledger.apply_peer(0, {});
  EXPECT_EQ(ledger[kA].peers_in_flight, 0);
  EXPECT_EQ(ledger[kA].peers_prefill_tokens, 0);
  EXPECT_EQ(ledger[kB].peers_in_flight, 0);
}

TEST(Ledger, WhatAPeerCannotHaveIsBroughtIntoRange) {
  Ledger ledger;
  const std::vector<PeerLoad> odd = {
      {kA, -5, std::numeric_limits<std::int64_t>::max()}, {kNoReplica, 1, 1}, {kB, 1'000'001, -1}};
  for (PeerIndex peer = 0; peer < kMaxPeers; ++peer) ledger.apply_peer(peer, odd);
  EXPECT_EQ(ledger[kA].peers_in_flight, 0);
  EXPECT_EQ(ledger[kA].peers_prefill_tokens, 1'024 * 1'000'000'000'000);
  EXPECT_EQ(ledger[kB].peers_in_flight, 1'024'000'000);
  EXPECT_EQ(ledger[kB].peers_prefill_tokens, 0);
  for (PeerIndex peer = 0; peer < kMaxPeers; ++peer) ledger.apply_peer(peer, {});
  EXPECT_EQ(ledger[kA].peers_prefill_tokens, 0);
  EXPECT_EQ(ledger[kB].peers_in_flight, 0);
}

// Case D26: an engine whose metrics lag says "nothing running" long after requests were sent.
TEST(Ledger, D26_WhatWasSentCountsWhateverTheReportsSay) {
  Ledger ledger;
  std::vector<Charge> charges;
  for (int i = 0; i < 18; ++i) {
    if (i % 6 == 0) ledger.close_window(kA, ledger.open_window(kA));
    charges.push_back(book_stream(ledger, kA, {10, 10}));
    EXPECT_EQ(ledger[kA].in_flight, i + 1);
    EXPECT_EQ(ledger[kA].awaiting, i + 1);
  }
  for (Charge& charge : charges) ledger.release(std::move(charge));
  EXPECT_EQ(ledger[kA].in_flight, 0);
}

// Case D30: a probe or report that goes well resets no count.
TEST(Ledger, D30_ReportsResetNoCount) {
  Ledger ledger;
  Charge first = book_stream(ledger, kA, {10, 10});
  Charge second = book_stream(ledger, kA, {10, 10});
  for (int i = 0; i < 40; ++i) ledger.close_window(kA, ledger.open_window(kA));
  EXPECT_EQ(ledger[kA].in_flight, 2);
  EXPECT_EQ(ledger[kA].awaiting, 2);
  EXPECT_EQ(ledger[kA].prefill_tokens, 20);
  ledger.release(std::move(first));
  ledger.release(std::move(second));
  EXPECT_EQ(ledger[kA].in_flight, 0);
}

TEST(Ledger, APlainRequestsPrefillPartIsReleasedWhenDue) {
  Ledger ledger;
  Charge charge = ledger.book(kA, {100, 60}, kStart, kStart + seconds(2));
  ledger.advance(kStart + milliseconds(1999));
  EXPECT_EQ(ledger[kA].prefill_tokens, 60);
  ledger.advance(kStart + seconds(2));
  EXPECT_EQ(ledger[kA].prefill_tokens, 0);
  EXPECT_EQ(ledger[kA].awaiting, 1) << "it leaves the queue at the next report";
  EXPECT_EQ(ledger[kA].in_flight, 1);
  ledger.release(std::move(charge));
  EXPECT_EQ(ledger[kA].awaiting, 0);
}

TEST(Ledger, APlainRequestLeavesTheQueueAtTheFirstReportAskedForAfterItsRelease) {
  Ledger ledger;
  Charge charge = ledger.book(kA, {100, 60}, kStart, kStart + seconds(2));
  const ReportWindow asked_before = ledger.open_window(kA);
  ledger.advance(kStart + seconds(2));
  ledger.close_window(kA, asked_before);
  EXPECT_EQ(ledger[kA].awaiting, 1) << "that report may not know of the release yet";
  ledger.close_window(kA, ledger.open_window(kA));
  EXPECT_EQ(ledger[kA].awaiting, 0);
  EXPECT_EQ(ledger[kA].in_flight, 1);
  ledger.release(std::move(charge));
  EXPECT_EQ(ledger[kA].awaiting, 0) << "it has left already";
  EXPECT_EQ(ledger[kA].in_flight, 0);
}

TEST(Ledger, APlainRequestWaitsThroughAnyNumberOfFailedReports) {
  Ledger ledger;
  Charge early = ledger.book(kA, {100, 60}, kStart, kStart + seconds(1));
  ledger.advance(kStart + seconds(1));
  for (std::size_t i = 0; i < 3 * Ledger::kWindows; ++i) (void)ledger.open_window(kA);
  EXPECT_EQ(ledger[kA].awaiting, 1);
  ledger.close_window(kA, ledger.open_window(kA));
  EXPECT_EQ(ledger[kA].awaiting, 0);
  ledger.release(std::move(early));

  Charge ended = ledger.book(kA, {100, 60}, kStart, kStart + seconds(1));
  ledger.advance(kStart + seconds(1));
  for (std::size_t i = 0; i < 3 * Ledger::kWindows; ++i) (void)ledger.open_window(kA);
  ledger.release(std::move(ended));
  EXPECT_EQ(ledger[kA].awaiting, 0);
  ledger.close_window(kA, ledger.open_window(kA));
  EXPECT_EQ(ledger[kA].awaiting, 0) << "it must not leave twice";
}

TEST(Ledger, ADueTimeDoesNotTouchTheNextUserOfTheEntry) {
  Ledger ledger;
  Charge first = ledger.book(kA, {100, 60}, kStart, kStart + seconds(2));
  const std::uint32_t entry = first.entry();
  ledger.release(std::move(first));
  Charge second = book_stream(ledger, kA, {100, 60});
  ASSERT_EQ(second.entry(), entry);
  ledger.advance(kStart + seconds(3));
  EXPECT_EQ(ledger[kA].prefill_tokens, 60);
  ledger.release(std::move(second));
}

TEST(Ledger, WindowsTellWhatAReportCannotKnowOf) {
  Ledger ledger;
  Charge before = book_stream(ledger, kA, {100, 100});
  EXPECT_EQ(ledger[kA].awaiting_since_report, 1) << "everything, before the first report";
  EXPECT_EQ(ledger[kA].tokens_since_report, 100);
  const ReportWindow window = ledger.open_window(kA);
  Charge during = book_stream(ledger, kA, {30, 30});
  EXPECT_EQ(ledger[kA].awaiting_since_report, 2) << "the report is not there yet";
  ledger.close_window(kA, window);
  EXPECT_EQ(ledger[kA].awaiting_since_report, 1);
  Charge after = book_stream(ledger, kA, {7, 7});
  EXPECT_EQ(ledger[kA].awaiting_since_report, 2);
  EXPECT_EQ(ledger[kA].tokens_since_report, 37);
  ledger.release(std::move(during));
  EXPECT_EQ(ledger[kA].awaiting_since_report, 1);
  EXPECT_EQ(ledger[kA].tokens_since_report, 37) << "its blocks may still be counted";
  ledger.first_token(after);
  EXPECT_EQ(ledger[kA].awaiting_since_report, 0);
  EXPECT_EQ(ledger[kA].awaiting, 1);
  ledger.release(std::move(before));
  ledger.release(std::move(after));
}

TEST(Ledger, AReportThatTookTooLongLeavesMoreCounted) {
  Ledger ledger;
  Charge charge = book_stream(ledger, kA, {100, 100});
  const ReportWindow window = ledger.open_window(kA);
  for (std::size_t i = 0; i < Ledger::kWindows; ++i) (void)ledger.open_window(kA);
  ledger.close_window(kA, window);
  EXPECT_EQ(ledger[kA].awaiting_since_report, 1);
  EXPECT_EQ(ledger[kA].tokens_since_report, 100);
  ledger.release(std::move(charge));
}

TEST(Ledger, ReportsThatArriveOutOfOrderDoNoHarm) {
  Ledger ledger;
  Charge charge = ledger.book(kA, {100, 60}, kStart, kStart + seconds(1));
  const ReportWindow older = ledger.open_window(kA);
  ledger.advance(kStart + seconds(1));
  const ReportWindow newer = ledger.open_window(kA);
  ledger.close_window(kA, newer);
  EXPECT_EQ(ledger[kA].awaiting, 0);
  ledger.close_window(kA, older);
  ledger.close_window(kA, newer);
  ledger.close_window(kA, newer + 100);
  EXPECT_EQ(ledger[kA].awaiting, 0);
  ledger.release(std::move(charge));
  EXPECT_EQ(ledger[kA].awaiting, 0);
}

// The ledger once more, by its definition and without any cleverness.
struct NaiveLedger {
  struct Request {
    ReplicaIndex replica;
    Cost cost;
    std::size_t booked_window;
    TimePoint due;
    bool first_token = false;
    bool prefill_released = false;
    std::size_t released_window = 0;
    bool left = false;
    [[nodiscard]] bool awaiting() const { return !first_token && !left; }
  };
  std::vector<Request> held;
  std::vector<std::size_t> current = std::vector<std::size_t>(3, 0);
  std::vector<std::vector<std::int64_t>> tokens_by_window =
      std::vector<std::vector<std::int64_t>>(3, std::vector<std::int64_t>(1, 0));

  [[nodiscard]] Load load(ReplicaIndex replica) const {
    Load load;
    for (const Request& request : held) {
      if (request.replica != replica) continue;
      ++load.in_flight;
      load.prompt_tokens += request.cost.prompt_tokens;
      if (request.awaiting()) ++load.awaiting;
      if (!request.first_token && !request.prefill_released) {
        load.prefill_tokens += request.cost.uncached_tokens;
      }
    }
    return load;
  }
};

// Random lives of requests and reports, against the naive ledger; in the end everything is zero.
class LedgerProperty : public testing::TestWithParam<std::uint64_t> {};

TEST_P(LedgerProperty, EqualsANaiveLedgerAndComesBackToZero) {
  constexpr ReplicaIndex kReplicas = 3;
  Rng rng(GetParam());
  Ledger ledger;
  NaiveLedger naive;
  std::vector<Charge> charges;                    // parallel to naive.held
  std::vector<std::size_t> closed(kReplicas, 0);  // the newest report's window
  TimePoint now = kStart;

  const auto end = [&](std::size_t i) {
    ledger.release(std::move(charges[i]));
    charges[i] = Charge{};
    if (i + 1 != charges.size()) charges[i] = std::move(charges.back());
    charges.pop_back();
    naive.held[i] = naive.held.back();
    naive.held.pop_back();
  };

  for (int step = 0; step < 4000; ++step) {
    const auto replica = static_cast<ReplicaIndex>(rng.below(kReplicas));
    switch (rng.below(8)) {
      case 0:
      case 1: {
        const auto prompt = static_cast<std::uint32_t>(1 + rng.below(5000));
        const Cost cost{prompt, static_cast<std::uint32_t>(rng.below(prompt + 1))};
        const TimePoint due =
            rng.below(2) == 0 ? TimePoint{} : now + milliseconds(1 + rng.below(500));
        charges.push_back(ledger.book(replica, cost, now, due));
        naive.held.push_back({replica, cost, naive.current[replica], due});
        naive.tokens_by_window[replica].back() += prompt;
        break;
      }
      case 2:
      case 3:
        if (!charges.empty()) end(rng.below(charges.size()));
        break;
      case 4:
        if (!charges.empty()) {
          const std::size_t i = rng.below(charges.size());
          EXPECT_EQ(ledger.first_token(charges[i]), !naive.held[i].first_token);
          naive.held[i].first_token = true;
        }
        break;
      case 5:
        now += milliseconds(rng.below(100));
        ledger.advance(now);
        for (NaiveLedger::Request& request : naive.held) {
          if (request.due != TimePoint{} && request.due <= now && !request.first_token &&
              !request.prefill_released) {
            request.prefill_released = true;
            request.released_window = naive.current[request.replica];
          }
        }
        break;
      case 6:
        EXPECT_EQ(ledger.open_window(replica), ++naive.current[replica]);
        naive.tokens_by_window[replica].push_back(0);
        break;
      default: {
        const std::size_t back = rng.below(Ledger::kWindows - 2);
        if (back >= naive.current[replica]) break;
        const std::size_t window = naive.current[replica] - back;
        ledger.close_window(replica, window);
        closed[replica] = std::max(closed[replica], window);
        for (NaiveLedger::Request& request : naive.held) {
          if (request.replica == replica && request.prefill_released &&
              request.released_window < window) {
            request.left = true;
          }
        }
        break;
      }
    }
    for (ReplicaIndex r = 0; r < kReplicas; ++r) {
      const Load expected = naive.load(r);
      const Load& got = ledger[r];
      ASSERT_EQ(got.in_flight, expected.in_flight) << "step " << step;
      ASSERT_EQ(got.awaiting, expected.awaiting) << "step " << step;
      ASSERT_EQ(got.prefill_tokens, expected.prefill_tokens) << "step " << step;
      ASSERT_EQ(got.prompt_tokens, expected.prompt_tokens) << "step " << step;
      ASSERT_GE(got.in_flight, got.awaiting) << "step " << step;
      std::int32_t awaiting = 0;
      for (const NaiveLedger::Request& request : naive.held) {
        if (request.replica == r && !request.first_token && request.booked_window >= closed[r]) {
          ++awaiting;
        }
      }
      std::int64_t tokens = 0;
      for (std::size_t w = closed[r]; w < naive.tokens_by_window[r].size(); ++w) {
        tokens += naive.tokens_by_window[r][w];
      }
      ASSERT_EQ(got.awaiting_since_report, awaiting) << "step " << step;
      ASSERT_EQ(got.tokens_since_report, tokens) << "step " << step;
    }
  }
  while (!charges.empty()) end(charges.size() - 1);
  for (ReplicaIndex r = 0; r < kReplicas; ++r) {
    EXPECT_EQ(ledger[r].in_flight, 0);
    EXPECT_EQ(ledger[r].awaiting, 0);
    EXPECT_EQ(ledger[r].prefill_tokens, 0);
    EXPECT_EQ(ledger[r].prompt_tokens, 0);
    EXPECT_EQ(ledger[r].awaiting_since_report, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, LedgerProperty, testing::Range<std::uint64_t>(1, 41));

}  // namespace
}  // namespace pointsman
