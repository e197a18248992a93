// Runs that last long, grow without end, or measure nothing.

#include <chrono>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/cluster.h"
#include "sim/scenario_file.h"
#include "support/registry.h"

namespace pointsman::sim {
namespace {

using testing::HasSubstr;

using testing_support::registry;

RunResult run_with(const Scenario& scenario, const char* policy, std::uint64_t seed) {
  Arm arm;
  arm.policy.preset = policy;
  return run(scenario, arm, registry(), seed);
}

std::string error_of(const Scenario& scenario) {
  try {
    (void)run_with(scenario, "round_robin", 1);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// Two engines that can do about 14.7 such requests per second, measured at several times that rate.
Scenario two_engines(double rate, std::uint32_t requests) {
  Scenario scenario;
  scenario.replicas.resize(2);
  for (ReplicaSpec& replica : scenario.replicas) {
    replica.engine = find_engine_preset("8b_h100")->config;
  }
  scenario.workload.first_prompt = {.median = 2'000, .sigma = 0.8};
  scenario.workload.output = {.median = 150, .sigma = 0.6};
  scenario.workload.turns_mean = 1;
  scenario.workload.turns_sigma = 0;
  scenario.arrivals.kind = ArrivalKind::kOpen;
  scenario.arrivals.rate = rate;
  scenario.measure.requests = requests;
  return scenario;
}

TEST(RunLimits, AQueueThatGrowsIsToldOfAtAnyWarmUp) {
  for (const double warm_up : {0.0, 0.2, 0.25, 0.5, 0.75, 0.9}) {
    Scenario twice = two_engines(30, 3'000);
    twice.measure.warm_up = warm_up;
    Scenario somewhat = two_engines(20, 7'500);
    somewhat.measure.warm_up = warm_up;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_EQ(run_with(twice, "least_connections", seed).over_capacity, 1) << warm_up;
      EXPECT_EQ(run_with(somewhat, "round_robin", seed).over_capacity, 1) << warm_up;
    }
  }
}

TEST(RunLimits, AQueueThatOnlyFluctuatesIsNot) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const double warm_up : {0.0, 0.5}) {
      Scenario scenario = two_engines(13.5, 4'000);  // 92 %
      scenario.measure.warm_up = warm_up;
      EXPECT_EQ(run_with(scenario, "least_connections", seed).over_capacity, 0) << seed;
    }
  }
}

TEST(RunLimits, ThreeYearsAreMeasuredLikeAnHour) {
  // A request every two hours, none of which meets another one.
  Scenario scenario = two_engines(1.0 / 7'200, 1'000);
  scenario.arrivals.cv = 0;
  scenario.workload.first_prompt.sigma = 0;
  scenario.workload.output.sigma = 0;
  scenario.balancers.poll = std::chrono::hours(12);
  scenario.measure.length = std::chrono::seconds(100'000'000);
  scenario.faults = {{.kind = FaultKind::kSlows,
                      .at = std::chrono::seconds(99'999'000),
                      .replica = 0,
                      .factor = 1}};
  const RunResult years = run_with(scenario, "round_robin", 1);
  EXPECT_NEAR(years.requests, 0.8 * 1e8 / 7'200, 2);
  scenario.arrivals.rate = 1;
  scenario.measure.length = std::chrono::seconds(1'000);
  scenario.faults.clear();
  const RunResult minutes = run_with(scenario, "round_robin", 1);
  EXPECT_NEAR(years.ttft_p50_s, minutes.ttft_p50_s, 0.01 * minutes.ttft_p50_s);
  EXPECT_LT(years.e2e_p99_s, minutes.e2e_p99_s * 1.001);
  EXPECT_NEAR(years.offered_rps, 1.0 / 7'200, 1e-6);
  EXPECT_GT(years.busy_share, 0);
  EXPECT_LT(years.busy_share, 0.001);
}

TEST(RunLimits, WhatTheClockCannotCountIsRefused) {
  Scenario scenario = two_engines(1e-6, 15'000);
  EXPECT_THAT(error_of(scenario), HasSubstr("measure.requests: at arrivals.rate 0.000001"));
  const auto refused = [](const std::string& text) {
    const Result<LoadedScenario> loaded = load_scenario(text, "s.yaml", registry());
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_THAT(refused("arrivals: {rate: 0.000001}\nmeasure:\n  requests: 101\n"),
              HasSubstr("s.yaml:3: measure.requests: at arrivals.rate 0.000001 they take 101"));
  EXPECT_THAT(refused("name: x\nreplicas:\n  - {slowness: 1000, engine: {token_s: 1}}\n"),
              HasSubstr("s.yaml:2: replicas: a step of replica 0 may take"));
  EXPECT_THAT(refused("measure: {length_s: 100000001}\n"), HasSubstr("0.001 to 100000000"));
}

TEST(RunLimits, MemoryIsNotTakenForRequestsThatMayNeverCome) {
  Scenario scenario = two_engines(10'000'000, 1);
  scenario.measure.length = std::chrono::seconds(100'000'000);
  scenario.arrivals.kind = ArrivalKind::kTrace;
  scenario.arrivals.trace = testing::TempDir() + "pointsman_short_trace";
  std::ofstream(scenario.arrivals.trace, std::ios::binary)
      << "Timestamp,Request tokens,Response tokens\n0,10,1\n1,10,1\n2,10,1\n";
  EXPECT_EQ(run_with(scenario, "round_robin", 1).requests, 2);
}

TEST(RunLimits, RequestsOfOneInstantHaveTimesAndNoRates) {
  Scenario scenario = two_engines(1, 1);
  scenario.arrivals.kind = ArrivalKind::kTrace;
  scenario.arrivals.trace = testing::TempDir() + "pointsman_instant_trace";
  std::ofstream(scenario.arrivals.trace, std::ios::binary)
      << "Timestamp,Request tokens,Response tokens\n5,100,10\n5,100,10\n5,100,10\n";
  const RunResult result = run_with(scenario, "round_robin", 1);
  EXPECT_EQ(result.requests, 3);
  EXPECT_GT(result.ttft_p50_s, 0);
  for (const double rate : {result.offered_rps, result.goodput_rps, result.busy_share,
                            result.cv_load, result.mean_in_flight, result.mean_kv}) {
    EXPECT_TRUE(std::isnan(rate));
  }
}

TEST(RunLimits, ATraceOfManyMonthsRunsAndWhatItLosesIsCounted) {
  Scenario scenario = two_engines(1, 1);
  scenario.balancers.poll = std::chrono::hours(1);
  scenario.workload.max_context = 1'000;
  scenario.arrivals.kind = ArrivalKind::kTrace;
  scenario.arrivals.trace = testing::TempDir() + "pointsman_months_trace";
  {
    std::ofstream file(scenario.arrivals.trace, std::ios::binary);
    file << "Timestamp,Request tokens,Response tokens\n";
    for (int hour = 0; hour < 121 * 24; ++hour) file << hour * 3'600 << ",100,50\n";
    file << 121 * 86'400 << ",900,100\n" << 121 * 86'400 << ",900,200\n";
    file << 121 * 86'400 << ",900,0\n" << 121 * 86'400 - 1 << ",10000,800\n";
  }
  const RunResult result = run_with(scenario, "round_robin", 1);
  EXPECT_NEAR(result.requests, 0.8 * 121 * 24 + 3, 1);
  EXPECT_EQ(result.trace_left_out, 1);
  EXPECT_EQ(result.trace_late, 1);
  EXPECT_EQ(result.trace_cut, 2);
  EXPECT_LT(result.e2e_p50_s, 5);
  EXPECT_TRUE(std::isnan(run_with(two_engines(1, 100), "round_robin", 1).trace_cut));
}

TEST(RunLimits, WhatIsCutOfConversationsIsCounted) {
  Scenario scenario = two_engines(1, 100);
  const RunResult whole = run_with(scenario, "round_robin", 1);
  EXPECT_EQ(whole.requests_cut, 0);
  EXPECT_EQ(whole.conversations_cut, 0);
  EXPECT_TRUE(std::isnan(whole.faults_missed)) << "there is none";
  // All are documents, longer than the KV cache of the smaller engine (100 blocks of 16 tokens).
  scenario.workload.document_share = 1;
  scenario.replicas[1].engine.blocks = 100;
  scenario.arrivals.cv = 0;
  scenario.workload.output.sigma = 0;
  const RunResult cut = run_with(scenario, "round_robin", 1);
  EXPECT_NEAR(cut.requests_cut, 100, 1) << "of all requests, the warm-up's as well";
  scenario.replicas[1].engine.blocks = 26'000;
  scenario.workload.max_context = 10'000;
  EXPECT_EQ(run_with(scenario, "round_robin", 1).requests_cut, cut.requests_cut);
  // An answer or a system prompt alone.
  scenario.workload.document_share = 0;
  scenario.workload.max_context = 4'000'000;
  scenario.workload.output = {.median = 5'000, .high = 5'000};
  scenario.workload.first_prompt = {.median = 10};
  scenario.workload.max_context = 16'000;
  EXPECT_EQ(run_with(scenario, "round_robin", 1).requests_cut, cut.requests_cut);
  scenario.workload.output.median = 10;
  scenario.workload.system_prompts = 1;
  scenario.workload.system_prompt = {.median = 9'000};
  EXPECT_EQ(run_with(scenario, "round_robin", 1).requests_cut, cut.requests_cut);
  scenario.workload.system_prompt = {.median = 7'000};
  EXPECT_EQ(run_with(scenario, "round_robin", 1).requests_cut, 0);
  // Two turns of which the second does not fit.
  scenario.workload.turns_mean = 2;
  scenario.workload.follow_up = {.median = 15'000};
  scenario.arrivals.kind = ArrivalKind::kSemiOpen;
  const RunResult ended = run_with(scenario, "round_robin", 1);
  EXPECT_EQ(ended.requests_cut, 0);
  EXPECT_NEAR(ended.conversations_cut, 50, 1);
  EXPECT_EQ(ended.follow_up_share, 0);
}

TEST(RunLimits, FaultsAfterTheLastRequestAreCounted) {
  Scenario scenario = two_engines(1, 100);
  scenario.arrivals.kind = ArrivalKind::kClosed;
  scenario.arrivals.users = 2;
  scenario.workload.think_s = 0;
  scenario.faults = {{.kind = FaultKind::kSlows, .at = std::chrono::seconds(1), .factor = 2},
                     {.kind = FaultKind::kSlows, .at = std::chrono::hours(9), .factor = 3}};
  EXPECT_EQ(run_with(scenario, "round_robin", 1).faults_missed, 1);
  scenario.faults.pop_back();
  EXPECT_EQ(run_with(scenario, "round_robin", 1).faults_missed, 0);
}

TEST(RunLimits, TheSharesOfTheReplicasAreMeasured) {
  const RunResult even = run_with(two_engines(5, 1'000), "round_robin", 1);
  EXPECT_NEAR(even.replica_share_min, 0.5, 0.001);
  EXPECT_NEAR(even.replica_share_max, 0.5, 0.001);
  Scenario one_dead = two_engines(5, 1'000);
  one_dead.faults = {{.kind = FaultKind::kDies}};
  const RunResult odd = run_with(one_dead, "round_robin", 1);
  EXPECT_EQ(odd.replica_share_min, 0);
  EXPECT_EQ(odd.replica_share_max, 1);
}

}  // namespace
}  // namespace pointsman::sim
