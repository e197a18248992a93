#include "experiments/compare.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

std::vector<Arm> two_arms() {
  std::vector<Arm> arms(2);
  arms[0].policy.preset = "round_robin";
  arms[1].policy.preset = "least_work";
  arms[1].label = "live";
  arms[1].poll = Duration{};
  return arms;
}

Scenario small() {
  Scenario scenario = *find_scenario_preset("set_a");
  scenario.measure.requests = 600;
  return scenario;
}

std::string bytes(int jobs, std::uint64_t first_seed) {
  const Registry registry = make_registry();
  const std::vector<Arm> arms = two_arms();
  const Scenario scenario = small();
  CompareOptions options;
  options.seeds = 3;
  options.jobs = jobs;
  options.first_seed = first_seed;
  const auto results = run_arms(scenario, arms, registry, options);
  Report report;
  report.scenario = scenario_record(scenario);
  report.seeds = options.seeds;
  for (std::size_t i = 0; i < arms.size(); ++i) report.rows.push_back(arm_row(arms[i], results[i]));
  return report_json(report);
}

TEST(Compare, SameSeedsSameBytesForAnyNumberOfThreads) {
  const std::string once = bytes(1, 1);
  EXPECT_EQ(once, bytes(1, 1));
  EXPECT_EQ(once, bytes(3, 1));
  EXPECT_NE(once, bytes(1, 2));
}

TEST(Compare, ARowHasEveryMeasureByItsKeyWithAnInterval) {
  const Arm arm = two_arms()[1];
  std::vector<RunResult> results(2);
  results[0].ttft_p99_s = 1;
  results[1].ttft_p99_s = 4;
  results[0].prefix_hit_rate = 0.2;
  results[1].prefix_hit_rate = 0.4;
  const Record row = arm_row(arm, results);
  EXPECT_EQ(row.text("policy"), "least_work");
  EXPECT_EQ(row.text("arm"), "live");
  EXPECT_DOUBLE_EQ(row.number("ttft_p99_s"), 2) << "times: the geometric mean";
  EXPECT_DOUBLE_EQ(row.number("prefix_hit_rate"), 0.3) << "shares: the arithmetic mean";
  EXPECT_LT(row.estimate("ttft_p99_s").low, 2);
  for (const Measure& measure : measures()) {
    EXPECT_NE(row.find(measure.key), nullptr) << measure.key;
  }
  EXPECT_FALSE(row.find("closed_loop_rps")->is_number()) << "not measured: null";
  for (const Measure& measure : measures()) {
    EXPECT_NE(row.find(std::string(measure.key) + "_ci95"), nullptr) << measure.key;
  }
}

TEST(Compare, TheScenarioOfAReportIsTheWholeOne) {
  Scenario scenario = small();
  scenario.replicas[0].engine.blocks = 123;
  scenario.faults.push_back({.kind = FaultKind::kSlows, .replica = 2, .factor = 3});
  const Record record = scenario_record(scenario);
  EXPECT_EQ(record.text("name"), "set_a");
  const Record* balancers = record.find("balancers")->as<Record>();
  ASSERT_NE(balancers, nullptr);
  EXPECT_EQ(balancers->number("poll_s"), 2);
  EXPECT_EQ(balancers->text("index"), "own");
  const auto* replicas = record.find("replicas")->as<Value::List>();
  ASSERT_NE(replicas, nullptr);
  ASSERT_EQ(replicas->size(), 4U) << "the odd one, five others, and one in each special pool";
  EXPECT_EQ((*replicas)[0].as<Record>()->find("engine")->as<Record>()->number("blocks"), 123);
  EXPECT_EQ((*replicas)[1].as<Record>()->number("count"), 5);
  const auto* faults = record.find("faults")->as<Value::List>();
  ASSERT_EQ(faults->size(), 1U);
  EXPECT_EQ((*faults)[0].as<Record>()->text("kind"), "slows");
}

TEST(Compare, LeastWorkOfSeveralBalancersIsToldOfThem) {
  Scenario scenario = small();
  scenario.balancers.count = 4;
  const auto options = [&](const Arm& arm) { return configured(arm, scenario).policy.options; };
  Arm arm = preset_arm("least_work", "");
  EXPECT_EQ(options(arm), (OptionMap{{"routers", 4.0}}));
  EXPECT_EQ(options(preset_arm("session_affinity", "")), OptionMap());
  arm.policy.options = {{"home_trust", 0.5}};
  EXPECT_EQ(options(arm), (OptionMap{{"home_trust", 0.5}, {"routers", 4.0}})) << "what it gives";
  arm.balancers = 1;
  EXPECT_EQ(options(arm), (OptionMap{{"home_trust", 0.5}})) << "nobody beside it";
}

TEST(Compare, ALoadAboveTheCapacityIsSaid) {
  const std::vector<Arm> arms = two_arms();
  std::vector<std::vector<RunResult>> results(2, std::vector<RunResult>(2));
  for (auto& runs : results) {
    for (RunResult& result : runs) result.requests = result.offered_rps = 10;
  }
  EXPECT_TRUE(arm_notes(Scenario{}, arms, results).empty());
  results[1][0].over_capacity = 1;
  results[1][0].queue_growth_rps = 2.5;
  results[0][1].failed = 3;
  const std::vector<std::string> notes = arm_notes(Scenario{}, arms, results);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find("round_robin: 1.5 requests a run had no complete answer"),
            std::string::npos);
  EXPECT_NE(notes[1].find("least_work live: above capacity in 1 of 2 runs"), std::string::npos);
  EXPECT_NE(notes[1].find("2.50 requests/s"), std::string::npos);
}

TEST(Compare, WhatWasNotMeasuredIsSaidWithItsReason) {
  const std::vector<Arm> arms = two_arms();
  std::vector<std::vector<RunResult>> results(2, std::vector<RunResult>(2));
  results[0][0].requests = results[0][0].offered_rps = 10;
  results[1][0].requests = results[1][1].requests = 10;
  const std::vector<std::string> notes = arm_notes(Scenario{}, arms, results);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find("round_robin: in 1 of 2 runs no request came in the measured time"),
            std::string::npos);
  EXPECT_NE(notes[1].find("least_work live: all measured requests came at once"),
            std::string::npos);
}

TEST(Compare, WhatWasCutAndWhatCameTooLateIsSaid) {
  const std::vector<Arm> arms = two_arms();
  std::vector<std::vector<RunResult>> results(2, std::vector<RunResult>(2));
  for (auto& runs : results) {
    for (RunResult& result : runs) result.requests = result.offered_rps = 10;
  }
  results[0][0].requests_cut = results[1][0].requests_cut = 4;
  results[0][1].requests_cut = results[1][1].requests_cut = 1;
  results[1][0].faults_missed = results[1][1].faults_missed = 1;
  Scenario scenario;
  scenario.faults.resize(3);
  const std::vector<std::string> notes = arm_notes(scenario, arms, results);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0],
            "2.5 requests a run were cut to what the engines and workload.max_context hold.");
  EXPECT_NE(notes[1].find("least_work live: 1.0 of 3 faults a run came after the last request"),
            std::string::npos);
}

TEST(Compare, FewerRequestsThanAskedForAreSaidWithTheReason) {
  const std::vector<Arm> arms = two_arms();
  std::vector<std::vector<RunResult>> results(2, std::vector<RunResult>(2));
  for (auto& runs : results) {
    for (RunResult& result : runs) {
      result.requests = 100;
      result.offered_rps = 9.6;
      result.e2e_mean_s = 5;
    }
  }
  Scenario scenario;
  scenario.arrivals.rate = 10;
  scenario.measure.requests = 1'000;
  scenario.workload.turns_law = TurnsLaw::kGeometric;
  scenario.workload.turns_mean = 3;
  scenario.workload.think_s = 15;
  EXPECT_TRUE(arm_notes(scenario, arms, results).empty());
  for (RunResult& result : results[0]) result.offered_rps = 9;
  const auto note = [&] {
    const std::vector<std::string> notes = arm_notes(scenario, arms, results);
    return notes.empty() ? std::string() : notes.back();
  };
  EXPECT_EQ(
      note(),
      "round_robin: 9 requests/s came where arrivals.rate is 10 (0.90): a conversation lasts "
      "about 40 s and requests come for 100 s, so that many a turn would come later; a longer "
      "run has more of them.");
  scenario.measure.requests = 100'000;
  EXPECT_NE(note().find("(0.90): so short a run is a matter of chance."), std::string::npos);
  results[0][0].conversations_cut = 3;
  results[0][1].failed = 1;
  EXPECT_NE(note().find("no complete answer"), std::string::npos);
  const std::vector<std::string> notes = arm_notes(scenario, arms, results);
  EXPECT_NE(notes[0].find("3.0 conversations a run ended before a turn"), std::string::npos);
  EXPECT_NE(notes[0].find("; clients whose request failed gave up."), std::string::npos);
  for (RunResult& result : results[0]) result.over_capacity = 1;
  EXPECT_NE(arm_notes(scenario, arms, results)[1].find("above capacity answers come late"),
            std::string::npos);
  scenario.arrivals.kind = ArrivalKind::kTrace;
  for (RunResult& result : results[0]) result.over_capacity = result.failed = 0;
  EXPECT_TRUE(arm_notes(scenario, arms, results).empty()) << "a trace asks for no rate";
}

TEST(Compare, IntervalsEndWhereTheMeasureDoes) {
  std::vector<RunResult> results(2);
  results[0].prefix_hit_rate = 0.01;
  results[1].prefix_hit_rate = 0.02;
  results[0].busy_share = 0.98;
  results[1].busy_share = 0.99;
  results[1].failed = 1;
  results[0].queue_growth_rps = 0;
  results[1].queue_growth_rps = 1;
  const Record row = arm_row(two_arms()[0], results);
  EXPECT_EQ(row.estimate("prefix_hit_rate").low, 0);
  EXPECT_EQ(row.estimate("busy_share").high, 1);
  EXPECT_EQ(row.estimate("failed").low, 0);
  EXPECT_LT(row.estimate("queue_growth_rps").low, 0) << "a queue may shrink";
}

TEST(Compare, OneRunHasNoInterval) {
  std::vector<RunResult> results(1);
  results[0].ttft_p99_s = results[0].prefix_hit_rate = 0.5;
  const Record row = arm_row(two_arms()[0], results);
  for (const char* key : {"ttft_p99_s", "prefix_hit_rate"}) {
    const Value* interval = row.find(std::string(key) + "_ci95");
    ASSERT_NE(interval, nullptr);
    JsonWriter json;
    interval->write(json);
    EXPECT_EQ(json.take(), "null");
    EXPECT_TRUE(std::isnan(row.estimate(key).high));
  }
}

TEST(Compare, ArmsOfTheSameNameAreNumbered) {
  std::vector<Arm> arms = {preset_arm("least_kv", ""), preset_arm("least_kv", "live"),
                           preset_arm("least_kv", "", {{"d", 2.0}}), preset_arm("random", "")};
  number_alike(arms);
  EXPECT_EQ(arms[0].label, "#1");
  EXPECT_EQ(arms[1].label, "live");
  EXPECT_EQ(arms[2].label, "#2");
  EXPECT_EQ(arms[3].label, "");
  arms[1].poll = Duration{};
  JsonWriter json;
  arms_value(arms).write(json);
  EXPECT_EQ(json.take(),
            R"([{"policy":{"preset":"least_kv","options":{}},"label":"#1"},)"
            R"({"policy":{"preset":"least_kv","options":{}},"label":"live","poll_s":0},)"
            R"({"policy":{"preset":"least_kv","options":{"d":2}},"label":"#2"},)"
            R"({"policy":{"preset":"random","options":{}},"label":""}])");
}

}  // namespace
}  // namespace pointsman::sim
