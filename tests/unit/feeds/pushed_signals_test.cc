#include "feeds/pushed_signals.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr double kUnixNow = 1'766'750'400.0;

class PushedSignalsTest : public ::testing::Test {
 protected:
  PushedSignalsTest() {
    for (const char* host : {"a", "b"}) {
      ReplicaSpec spec;
      spec.url = std::string("http://") + host + ":8000";
      spec.host = host;
      spec.port = 8000;
      EXPECT_TRUE(fleet_.add(spec).ok());
    }
  }
  Result<void> push(std::string_view json) {
    return take_pushed_signals(json, fleet_, router_, seconds(3), clock_.now(), kUnixNow);
  }
  Signals signals(ReplicaIndex replica) {
    return router_.with([&](Router& router) { return router.signals(replica); });
  }

  ManualClock clock_;
  Fleet fleet_{{{"general", PoolPurpose::kGeneral}}, HealthOptions{}, clock_};
  SharedRouter router_{Router::Options{}, {}};
};

TEST_F(PushedSignalsTest, AreAReportLikeAPage) {
  ASSERT_TRUE(push(R"({"replica": "http://b:8000", "timestamp": 1766750399.0,
      "signals": {"kv_usage": 0.41, "running": 5, "waiting": 2, "kv_capacity_tokens": 4096}})")
                  .ok());
  const Signals b = signals(1);
  EXPECT_FLOAT_EQ(b.kv_usage, 0.41F);
  EXPECT_EQ(b.running, 5);
  EXPECT_EQ(b.waiting, 2);
  EXPECT_EQ(b.kv_capacity_tokens, 4096U);
  EXPECT_TRUE(std::isnan(b.queued_tokens));
  EXPECT_EQ(b.observed_at, clock_.now() - seconds(1));
  EXPECT_TRUE(b.fresh(clock_.now() + seconds(2)));
  EXPECT_FALSE(b.fresh(clock_.now() + seconds(2) + std::chrono::milliseconds(1)));
  EXPECT_EQ(signals(0).observed_at, TimePoint{});
}

TEST_F(PushedSignalsTest, SeveralReplicasAtOnceOrNone) {
  EXPECT_FALSE(push(R"([{"replica": "http://a:8000", "signals": {"waiting": 1}},
                        {"replica": "http://c:8000", "signals": {"waiting": 1}}])")
                   .ok());
  EXPECT_EQ(signals(0).observed_at, TimePoint{});
  EXPECT_TRUE(push(R"([{"replica": "http://a:8000", "signals": {"waiting": 1}},
                       {"replica": "http://b:8000", "signals": {"waiting": 2}}])")
                  .ok());
  EXPECT_EQ(signals(0).waiting, 1);
  EXPECT_EQ(signals(1).waiting, 2);
}

TEST_F(PushedSignalsTest, SleepReachesTheFleet) {
  fleet_.probe_result(0, {ProbeResult::Kind::kReady, "200"});
  ASSERT_TRUE(push(R"({"replica": "http://a:8000", "signals": {"awake": 0}})").ok());
  EXPECT_EQ(fleet_.status(0)->why, "asleep");
}

TEST_F(PushedSignalsTest, WhatIsWrongIsNamed) {
  struct Row {
    const char* json;
    const char* text;
  };
  for (const Row& row :
       {Row{"waiting 1", "not JSON"}, Row{"7", "expected an object"},
        Row{R"({"signals": {"waiting": 1}})", "replica"},
        Row{R"({"replica": "http://c:8000", "signals": {"waiting": 1}})", "http://c:8000"},
        Row{R"({"replica": "http://a:8000"})", "signals"},
        Row{R"({"replica": "http://a:8000", "signals": {}})", "at least one"},
        Row{R"({"replica": "http://a:8000", "signals": {"queue": 1}})", "signals.queue"},
        Row{R"({"replica": "http://a:8000", "signals": {"waiting": "1"}})", "signals.waiting"},
        Row{R"({"replica": "http://a:8000", "signals": {"waiting": -1}})", "out of range"},
        Row{R"({"replica": "http://a:8000", "signals": {"kv_usage": 41}})", "out of range"},
        Row{R"({"replica": "http://a:8000", "pod": "x", "signals": {"waiting": 1}})", "'pod'"},
        Row{R"({"replica": "http://a:8000", "timestamp": "now", "signals": {"waiting": 1}})",
            "timestamp"},
        Row{R"({"replica": "http://a:8000", "timestamp": 1766750396, "signals": {"waiting": 1}})",
            "older"},
        Row{R"({"replica": "http://a:8000", "timestamp": 1766750410, "signals": {"waiting": 1}})",
            "future"}}) {
    const Result<void> result = push(row.json);
    ASSERT_FALSE(result.ok()) << row.json;
    EXPECT_EQ(result.error().kind, ErrorKind::kClient);
    EXPECT_THAT(result.error().message, HasSubstr(row.text)) << row.json;
  }
  EXPECT_EQ(signals(0).observed_at, TimePoint{});
}

}  // namespace
}  // namespace pointsman
