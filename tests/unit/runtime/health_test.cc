#include "runtime/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using Kind = ProbeResult::Kind;
using Phase = HealthState::Phase;

class HealthTest : public ::testing::Test {
 protected:
  HealthChange probe(Kind kind, std::string detail = {}) {
    return apply_probe(state_, {kind, std::move(detail)}, options_, clock_.now());
  }
  HealthChange fail(RequestFailure failure) {
    const HealthChange change = apply_request_failure(state_, failure, options_, clock_.now());
    if (change.wants_ejection != EjectionCause::kNone) {
      eject(state_, change.wants_ejection, options_, clock_.now());
    }
    return change;
  }
  void fail_times(int times, RequestFailure failure) {
    for (int i = 0; i < times; ++i) fail(failure);
  }
  [[nodiscard]] bool usable() const { return state_.usable(clock_.now()); }
  void make_ready() { probe(Kind::kReady); }

  ManualClock clock_;
  HealthOptions options_;
  HealthState state_;
};

TEST_F(HealthTest, NothingIsUsableBeforeItsFirstGoodProbe) {
  EXPECT_FALSE(usable());
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("no probe"));
  probe(Kind::kNotReady, "503 Loading model");
  EXPECT_FALSE(usable());
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("503 Loading model"));
  const HealthChange change = probe(Kind::kReady, "200");
  EXPECT_TRUE(usable());
  EXPECT_FALSE(change.came_back) << "it was never away";
  EXPECT_EQ(why_unusable(state_, clock_.now()), "");
}

// Case D68: one slow probe takes nobody out.
TEST_F(HealthTest, ThreeFailedProbesInARowTakeItOutOneGoodOneTakesItIn) {
  make_ready();
  for (const Kind kind : {Kind::kTimedOut, Kind::kNotReady, Kind::kReady, Kind::kFailed,
                          Kind::kTimedOut, Kind::kReady}) {
    probe(kind);
    EXPECT_TRUE(usable());
  }
  probe(Kind::kTimedOut);
  probe(Kind::kFailed);
  EXPECT_TRUE(usable());
  EXPECT_FALSE(probe(Kind::kNotReady, "503").went_gone) << "time-outs and answers cut nothing";
  EXPECT_FALSE(usable());
  EXPECT_EQ(state_.phase, Phase::kNotReady);
  EXPECT_TRUE(probe(Kind::kReady).came_back);
  EXPECT_TRUE(usable());
}

// Case D68: a replica that delivers bytes is busy, not dead, however many probes it misses.
TEST_F(HealthTest, MissedProbesOfABusyReplicaAreNoFailures) {
  make_ready();
  for (int i = 0; i < 20; ++i) probe(Kind::kTimedOutServing);
  EXPECT_TRUE(usable());
  // Nor do they wipe out what counts.
  probe(Kind::kTimedOut);
  probe(Kind::kTimedOut);
  probe(Kind::kTimedOutServing);
  EXPECT_TRUE(usable());
  probe(Kind::kTimedOut);
  EXPECT_FALSE(usable());
}

TEST_F(HealthTest, GoneAfterTwoRefusedConnectionsInARowWhoeverMadeThem) {
  for (const bool probe_first : {false, true}) {
    for (const bool probe_second : {false, true}) {
      state_ = HealthState();
      make_ready();
      const auto refuse = [&](bool by_probe) {
        return by_probe ? probe(Kind::kRefused) : fail(RequestFailure::kRefused);
      };
      EXPECT_FALSE(refuse(probe_first).went_gone);
      EXPECT_TRUE(usable());
      EXPECT_TRUE(refuse(probe_second).went_gone);
      EXPECT_FALSE(usable());
      EXPECT_FALSE(refuse(true).went_gone) << "told once";
      EXPECT_TRUE(probe(Kind::kReady).came_back);
      EXPECT_TRUE(usable());
    }
  }
}

TEST_F(HealthTest, AnAnsweredProbeBetweenTwoRefusalsKeepsItFromBeingGone) {
  make_ready();
  for (const Kind kind : {Kind::kReady, Kind::kNotReady, Kind::kTimedOut}) {
    EXPECT_FALSE(probe(Kind::kRefused).went_gone);
    probe(kind);
    EXPECT_FALSE(fail(RequestFailure::kRefused).went_gone);
    probe(Kind::kReady);
  }
}

TEST_F(HealthTest, AnAnswerOnANewConnectionBetweenTwoRefusalsKeepsItFromBeingGone) {
  probe(Kind::kReady);
  fail(RequestFailure::kRefused);
  apply_connection_answered(state_);
  EXPECT_FALSE(fail(RequestFailure::kRefused).went_gone);
  EXPECT_TRUE(fail(RequestFailure::kRefused).went_gone);
  apply_connection_answered(state_);  // of an exchange that began before
  EXPECT_EQ(state_.phase, HealthState::Phase::kGone);
}

TEST_F(HealthTest, OtherConnectionFaultsNeverMakeItGone) {
  make_ready();
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(fail(RequestFailure::kConnection).went_gone);
    EXPECT_FALSE(fail(RequestFailure::kServerError).went_gone);
  }
  EXPECT_EQ(state_.phase, Phase::kReady);
}

TEST_F(HealthTest, GoneTellsHowConnectionsFailedNotWhatTheLastProbeMet) {
  probe(Kind::kReady, "200");
  fail_times(2, RequestFailure::kRefused);
  EXPECT_EQ(why_unusable(state_, clock_.now()), "gone: connection refused or reset");
  probe(Kind::kTimedOut, "timed out");
  EXPECT_EQ(why_unusable(state_, clock_.now()), "gone: connection refused or reset");
  probe(Kind::kRefused, "connection refused");
  EXPECT_EQ(why_unusable(state_, clock_.now()), "gone: connection refused");
}

TEST_F(HealthTest, OneThatAnswersAgainIsNotReadyRatherThanGone) {
  make_ready();
  probe(Kind::kRefused, "connection refused");
  probe(Kind::kRefused, "connection refused");
  probe(Kind::kNotReady, "503 Loading model");
  EXPECT_EQ(why_unusable(state_, clock_.now()), "not ready: 503 Loading model");
  EXPECT_TRUE(probe(Kind::kReady, "200").came_back) << "its cache may be cold";
}

TEST_F(HealthTest, GoneCutsNothingWhereThereWasNeverAnything) {
  EXPECT_FALSE(probe(Kind::kRefused).went_gone);
  EXPECT_FALSE(probe(Kind::kRefused).went_gone);
  EXPECT_EQ(state_.phase, Phase::kGone);
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("gone"));
}

TEST_F(HealthTest, ThreeConnectionFaultsInARowEjectASuccessBetweenDoesNot) {
  make_ready();
  fail_times(2, RequestFailure::kConnection);
  apply_request_success(state_);
  fail_times(2, RequestFailure::kConnection);
  EXPECT_TRUE(usable());
  fail(RequestFailure::kConnection);
  EXPECT_FALSE(usable());
  clock_.advance(seconds(10));
  EXPECT_TRUE(usable());
}

// Case D30, the same kind: a probe wipes out no count that it has no part in.
TEST_F(HealthTest, GoodProbesForgiveNoFaultOfARequest) {
  make_ready();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(usable());
    fail(RequestFailure::kConnection);
    probe(Kind::kReady);
    probe(Kind::kReady);
  }
  EXPECT_FALSE(usable());

  state_ = HealthState();
  make_ready();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(usable());
    fail(RequestFailure::kServerError);
    probe(Kind::kReady);
  }
  EXPECT_FALSE(usable());
}

TEST_F(HealthTest, AGoodProbeEndsAnEjectionByRefusalsOnly) {
  make_ready();
  fail_times(3, RequestFailure::kRefused);
  EXPECT_FALSE(usable());
  probe(Kind::kReady);
  EXPECT_TRUE(usable()) << "it takes connections again";

  fail_times(5, RequestFailure::kServerError);
  for (int i = 0; i < 3; ++i) {
    probe(Kind::kReady);
    EXPECT_FALSE(usable()) << "a probe does not see what made the 5xx";
  }
  clock_.advance(seconds(60));
  EXPECT_TRUE(usable());

  fail(RequestFailure::kRefused);
  fail_times(2, RequestFailure::kConnection);
  probe(Kind::kReady);
  EXPECT_FALSE(usable()) << "not all of these were refusals";
}

TEST_F(HealthTest, FiveOwn5xxInARowEjectAndSaySo) {
  make_ready();
  fail_times(4, RequestFailure::kServerError);
  EXPECT_TRUE(usable());
  fail(RequestFailure::kServerError);
  EXPECT_FALSE(usable());
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("5xx"));
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("10 s"));
}

TEST_F(HealthTest, EjectionsThatFollowEachOtherGrowUpToACeiling) {
  make_ready();
  for (int n = 1; n <= 40; ++n) {
    fail_times(5, RequestFailure::kServerError);
    const Duration time = std::min<Duration>(seconds(10) * n, seconds(300));
    EXPECT_EQ(state_.ejected_until - clock_.now(), time) << n;
    clock_.advance(time);
    EXPECT_TRUE(usable());
    apply_request_success(state_);
  }
  // After a long good time it begins anew.
  clock_.advance(seconds(301));
  fail_times(5, RequestFailure::kServerError);
  EXPECT_EQ(state_.ejected_until - clock_.now(), seconds(10));
}

TEST_F(HealthTest, AnEjectedReplicaIsNotEjectedFurther) {
  make_ready();
  fail_times(5, RequestFailure::kServerError);
  const TimePoint until = state_.ejected_until;
  clock_.advance(seconds(1));
  fail_times(50, RequestFailure::kServerError);
  fail_times(50, RequestFailure::kConnection);
  EXPECT_EQ(state_.ejected_until, until);
}

TEST_F(HealthTest, ASleepingReplicaIsNotUsable) {
  make_ready();
  state_.awake = false;
  EXPECT_FALSE(usable());
  EXPECT_EQ(why_unusable(state_, clock_.now()), "asleep");
  probe(Kind::kReady);
  EXPECT_FALSE(usable()) << "its health path answers 200 while it sleeps";
}

TEST_F(HealthTest, OneThatSaidItIsShuttingDownComesBackAfterItsRestartOrHalfAMinute) {
  make_ready();
  apply_leaving(state_, clock_.now());
  EXPECT_FALSE(usable());
  probe(Kind::kReady);
  EXPECT_FALSE(usable()) << "a draining server answers its probes with 200";
  probe(Kind::kRefused);
  probe(Kind::kReady);
  EXPECT_TRUE(usable());

  apply_leaving(state_, clock_.now());
  clock_.advance(seconds(29));
  EXPECT_FALSE(usable());
  EXPECT_THAT(why_unusable(state_, clock_.now()), HasSubstr("shutting down"));
  clock_.advance(seconds(1));
  EXPECT_TRUE(usable());
}

// Whatever happens, a replica whose probes pass again and whose ejection is over is usable.
TEST_F(HealthTest, NoHistoryKeepsAHealthyReplicaOutForEver) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 200; ++i) {
      switch (rng.below(4)) {
        case 0:
          probe(static_cast<Kind>(rng.below(6)));
          break;
        case 1:
          fail(static_cast<RequestFailure>(rng.below(3)));
          break;
        case 2:
          clock_.advance(std::chrono::milliseconds(rng.below(5000)));
          break;
        default:
          rng.below(10) == 0 ? apply_leaving(state_, clock_.now()) : apply_request_success(state_);
      }
      EXPECT_EQ(why_unusable(state_, clock_.now()).empty(), usable());
    }
    probe(Kind::kReady);
    clock_.advance(seconds(301));
    EXPECT_TRUE(usable());
  }
}

}  // namespace
}  // namespace pointsman
