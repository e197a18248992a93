#include "sim/scenario_file.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/yaml_tree.h"
#include "sim/scenario_keys.h"
#include "support/registry.h"

namespace pointsman::sim {
namespace {

using testing::HasSubstr;

using testing_support::registry;

LoadedScenario load(const std::string& text) {
  Result<LoadedScenario> loaded = load_scenario(text, "runs/s.yaml", registry());
  EXPECT_TRUE(loaded) << loaded.error().message;
  return loaded ? *loaded : LoadedScenario{};
}

std::string error_of(const std::string& text) {
  const Result<LoadedScenario> loaded = load_scenario(text, "s.yaml", registry());
  EXPECT_FALSE(loaded);
  return loaded ? "" : loaded.error().message;
}

TEST(ScenarioFile, AFileStartsFromItsPresetWhereverThatStands) {
  const LoadedScenario loaded = load("arrivals: {rate: 9}\npreset: ref70\n");
  const Scenario preset = *find_scenario_preset("ref70");
  EXPECT_EQ(loaded.scenario.arrivals.rate, 9);
  EXPECT_EQ(loaded.scenario.arrivals.cv, preset.arrivals.cv);
  EXPECT_EQ(loaded.scenario.replicas.size(), 8U);
  EXPECT_EQ(loaded.scenario.replicas[0].engine.blocks, 40'000U);
  EXPECT_TRUE(loaded.arms.empty());
}

TEST(ScenarioFile, WithoutAPresetThereAreEightReplicas) {
  const LoadedScenario loaded = load("name: x\n");
  EXPECT_EQ(loaded.scenario.replicas.size(), 8U);
  EXPECT_EQ(loaded.scenario.replicas[7].engine.blocks,
            find_engine_preset("8b_a100")->config.blocks);
}

TEST(ScenarioFile, ReplicasFaultsAndArmsAreRead) {
  const LoadedScenario loaded = load(R"(
faults:
  - {kind: dies, at_s: 12.5, replica: 2}
  - {kind: slows, at_s: 20, replica: 0, factor: 3}
replicas:
  - {count: 2, engine: 8b_h100}
  - {pool: long_context, weight: 2, engine: {preset: 8b_h100, blocks: 50000}}
arrivals: {kind: trace, trace: data/a.jsonl}
arms:
  - policy: least_work
  - policy: {preset: least_kv, choices: 3}
    label: live
    poll_s: 2.5
    balancers: 4
    phase: synchronised
    exchange_s: 0.05
    index: exact
    event_delay_s: 0.2
    segregated: true
    saturation_kv: 0.8
)");
  const Scenario& scenario = loaded.scenario;
  ASSERT_EQ(scenario.replicas.size(), 3U);
  EXPECT_EQ(scenario.replicas[1].engine.blocks, 26'000U);
  EXPECT_EQ(scenario.replicas[2].engine.blocks, 50'000U);
  EXPECT_EQ(scenario.replicas[2].engine.token_s, 32e-6);
  EXPECT_EQ(scenario.replicas[2].pool, PoolPurpose::kLongContext);
  EXPECT_EQ(scenario.replicas[2].weight, 2);
  ASSERT_EQ(scenario.faults.size(), 2U);
  EXPECT_EQ(scenario.faults[0].kind, FaultKind::kDies);
  EXPECT_EQ(scenario.faults[0].at, std::chrono::milliseconds(12'500));
  EXPECT_EQ(scenario.faults[0].replica, 2U);
  EXPECT_EQ(scenario.faults[1].factor, 3);
  EXPECT_EQ(scenario.arrivals.trace, "runs/data/a.jsonl");
  ASSERT_EQ(loaded.arms.size(), 2U);
  EXPECT_EQ(loaded.arms[0].policy.preset, "least_work");
  EXPECT_FALSE(loaded.arms[0].poll.has_value());
  const Scenario changed = with_arm(scenario, loaded.arms[1]);
  EXPECT_EQ(loaded.arms[1].label, "live");
  EXPECT_EQ(changed.balancers.poll, std::chrono::milliseconds(2'500));
  EXPECT_EQ(changed.balancers.count, 4U);
  EXPECT_EQ(changed.balancers.phase, PollPhase::kSynchronised);
  EXPECT_EQ(changed.balancers.exchange, std::chrono::milliseconds(50));
  EXPECT_EQ(changed.balancers.index, IndexKind::kExact);
  EXPECT_EQ(changed.balancers.event_delay, std::chrono::milliseconds(200));
  EXPECT_TRUE(changed.segregated);
  EXPECT_EQ(changed.balancers.saturation.kv, 0.8);
  EXPECT_EQ(changed.balancers.saturation.queue, 16) << "the shipped one";
}

// Writing out what a scenario says and reading it again changes nothing: so every key is read into
// the place that it is shown from.
TEST(ScenarioFile, EveryKeyIsReadAsItIsWritten) {
  Scenario scenario = *find_scenario_preset("ref70");
  scenario.name = "other";
  scenario.segregated = true;
  scenario.balancers.signal_delay = std::chrono::milliseconds(20);
  scenario.balancers.index = IndexKind::kShared;
  scenario.workload.turns_law = TurnsLaw::kGeometric;
  scenario.workload.system_prompts = 7;
  scenario.arrivals.users = 3;
  Scenario read;
  for (const Key<Scenario>& key : scenario_keys()) {
    const std::string text = key.text(scenario);
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.text = text == "\"\"" ? "" : text;
    const Result<void> outcome = key.read(read, node);
    EXPECT_TRUE(outcome) << key.path << ": " << outcome.error().message;
    EXPECT_EQ(key.text(read), text) << key.path;
    EXPECT_FALSE(key.help.empty()) << key.path;
  }
  for (const Key<Scenario>& key : scenario_keys()) {
    EXPECT_EQ(key.text(read), key.text(scenario)) << key.path << " was changed by another key";
  }
}

TEST(ScenarioFile, AllFaultsAreToldAtOnceWithLineKeyAndWhatIsAllowed) {
  const std::string error = error_of(R"(preset: ref7
balancers: {cuont: 2, poll_s: -1, index: nope}
workload:
  first_prompt: {median: 0}
  thnik_s: 5
faults:
  - {kind: dies, at_s: 500, replica: 99}
replicas:
  - {count: 2, engine: 8b_h10}
  - {engine: {preset: 8b_h100, blokcs: 3}}
arms:
  - {policy: least_wrok}
  - {policy: least_kv, poll_s: x, pol: 1}
  - label: nothing
measure: 5
)");
  EXPECT_THAT(error, HasSubstr("s.yaml:1: preset: unknown scenario 'ref7' (known: ref70, set_a; "
                               "nearest: ref70)"));
  EXPECT_THAT(error, HasSubstr("s.yaml:2: balancers.cuont: unknown key (known: count, poll_s"));
  EXPECT_THAT(error, HasSubstr("nearest: count)"));
  EXPECT_THAT(error, HasSubstr("s.yaml:2: balancers.poll_s: '-1' is not allowed (allowed: seconds, "
                               "0.001 to 86400, or 0: live"));
  EXPECT_THAT(error, HasSubstr("s.yaml:2: balancers.index: 'nope' is not allowed (allowed: own | "
                               "shared | exact)"));
  EXPECT_THAT(error, HasSubstr("s.yaml:4: workload.first_prompt.median: '0' is not allowed"));
  EXPECT_THAT(error, HasSubstr("s.yaml:5: workload.thnik_s: unknown key"));
  EXPECT_THAT(error, HasSubstr("s.yaml:7: faults[0].replica: there are 3 replicas"));
  EXPECT_THAT(error, HasSubstr("s.yaml:9: replicas[0].engine: unknown engine '8b_h10'"));
  EXPECT_THAT(error, HasSubstr("s.yaml:10: replicas[1].engine.blokcs: unknown key"));
  EXPECT_THAT(error, HasSubstr("s.yaml:12: arms[0].policy: unknown policy 'least_wrok'"));
  EXPECT_THAT(error, HasSubstr("s.yaml:13: arms[1].poll_s: 'x' is not allowed"));
  EXPECT_THAT(error, HasSubstr("s.yaml:13: arms[1].pol: unknown key"));
  EXPECT_THAT(error, HasSubstr("s.yaml:14: arms[2].policy: is missing"));
  EXPECT_THAT(error, HasSubstr("s.yaml:15: measure: is not a map of keys to values"));
}

TEST(ScenarioFile, WhatCannotHoldTogetherIsRefused) {
  EXPECT_THAT(error_of("arrivals: {kind: closed}\n"), HasSubstr("arrivals.users"));
  EXPECT_THAT(error_of("arrivals: {kind: trace}\n"), HasSubstr("arrivals.trace"));
  EXPECT_THAT(error_of("segregated: true\nreplicas: [{pool: long_context}]\n"),
              HasSubstr("no replica is in the general pool"));
  EXPECT_THAT(error_of("replicas: []\n"), HasSubstr("lists none"));
  EXPECT_THAT(error_of("workload:\n  turns: geometric\n  turns_mean: 0.5\n"),
              HasSubstr("s.yaml:3: workload.turns_mean: is 0.5, and the geometric law needs"));
  EXPECT_EQ(load("workload: {turns: lognormal, turns_mean: 0.5}\n").scenario.workload.turns_mean,
            0.5);
  EXPECT_THAT(error_of("replicas: [{count: 8192}, {count: 1}]\n"),
              HasSubstr("s.yaml:1: replicas[1].count: makes more than 8192 replicas in all"));
  EXPECT_THAT(error_of("workload: {document_low: 9000, document_high: 10}\n"),
              HasSubstr("is above document_high"));
  EXPECT_THAT(error_of("- a\n"), HasSubstr("s.yaml:1: is not a map"));
  EXPECT_THAT(error_of("name: [1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(load_scenario_file("/nowhere/at/all.yaml", registry()).error().message,
              HasSubstr("/nowhere/at/all.yaml: cannot be read"));
}

TEST(ScenarioFile, FaultsThatChangeNothingAreRefused) {
  const auto faults = [](const std::string& list) {
    return error_of("arrivals: {rate: 1}\nmeasure: {requests: 100}\nfaults:\n" + list);
  };
  EXPECT_THAT(faults("  - {kind: restarts, at_s: 1}\n"),
              HasSubstr("s.yaml:4: faults[0]: changes nothing: the replica has not died"));
  EXPECT_THAT(faults("  - {kind: dies, at_s: 5}\n  - {kind: dies, at_s: 1}\n"),
              HasSubstr("s.yaml:4: faults[0]: changes nothing: the replica is dead then"));
  EXPECT_THAT(faults("  - {kind: dies, at_s: 1}\n  - {kind: joins, at_s: 2}\n"),
              HasSubstr("s.yaml:4: faults[0]: changes nothing: comes before the replica joins"));
  EXPECT_THAT(faults("  - {kind: joins, at_s: 1}\n  - {kind: joins, at_s: 2}\n"),
              HasSubstr("s.yaml:5: faults[1]: changes nothing: the replica is there then"));
  EXPECT_THAT(faults("  - {kind: reports, at_s: 1}\n"), HasSubstr("has not stopped"));
  EXPECT_THAT(faults("  - {kind: dies, at_s: 101}\n"), HasSubstr("comes after the last request"));
  EXPECT_THAT(faults("  - {kind: slows, at_s: 1}\n"),
              HasSubstr("s.yaml:4: faults[0].factor: is missing"));
  EXPECT_THAT(faults("  - {kind: dies, at_s: 1, factor: 2}\n"), HasSubstr("of the kind slows"));
  const LoadedScenario good = load(
      "faults:\n"
      "  - {kind: dies, at_s: 1}\n  - {kind: restarts, at_s: 2}\n  - {kind: dies, at_s: 3}\n"
      "  - {kind: joins, at_s: 9, replica: 1}\n  - {kind: dies, at_s: 10, replica: 1}\n"
      "  - {kind: stops_reporting, at_s: 1, replica: 2}\n"
      "  - {kind: reports, at_s: 2, replica: 2}\n");
  EXPECT_EQ(good.scenario.faults.size(), 7U);
}

// With what the command line says.
std::string error_with(const std::string& text, const ScenarioOverrides& overrides) {
  const Result<LoadedScenario> loaded = load_scenario(text, "s.yaml", registry(), overrides);
  return loaded ? "" : loaded.error().message;
}

TEST(ScenarioFile, FaultsAreCheckedOfTheFleetThatIsRun) {
  for (const char* const fault :
       {"kind: dies", "kind: slows, factor: 3", "kind: joins", "kind: stops_reporting"}) {
    for (const char* const arrivals : {"{rate: 1}", "{kind: closed, users: 50}"}) {
      const std::string text = std::string("preset: set_a\narrivals: ") + arrivals +
                               "\nfaults:\n  - {at_s: 10, replica: 5, " + fault + "}\n";
      EXPECT_EQ(error_with(text, {}), "");
      EXPECT_EQ(error_with(text, {.replicas = 6}), "");
      EXPECT_THAT(error_with(text, {.replicas = 2}),
                  HasSubstr("s.yaml:4: faults[0].replica: 5, but --replicas leaves 2, numbered "
                            "from 0"));
    }
  }
  const std::string outside = "preset: set_a\nfaults:\n  - kind: dies\n    replica: 12\n";
  EXPECT_THAT(error_of(outside), HasSubstr("s.yaml:4: faults[0].replica: there are 8 replicas"));
  EXPECT_EQ(error_with(outside, {.replicas = 16}), "") << "the fleet that is run has it";
}

TEST(ScenarioFile, FaultsAreCheckedOfTheLengthThatIsRun) {
  const std::string text = "preset: set_a\nfaults:\n  - {kind: dies, at_s: 130, replica: 1}\n";
  EXPECT_EQ(error_with(text, {}), "");
  EXPECT_THAT(error_with(text, {.requests = 500}),
              HasSubstr("s.yaml:3: faults[0]: changes nothing: comes after the last request, at "
                        "27.7778 s with --requests 500"));
  EXPECT_THAT(error_with(text, {.quick = true}), HasSubstr("at 111.111 s with --quick"));
  EXPECT_EQ(error_with(text, {.replicas = 80}), "") << "its run is as long";
  const std::string long_run = "measure: {length_s: 1000}\nfaults: [{kind: dies, at_s: 900}]\n";
  EXPECT_EQ(error_with(long_run, {}), "");
  EXPECT_THAT(error_with(long_run, {.requests = 500}), HasSubstr("with --requests 500"));
}

TEST(ScenarioFile, WhatFlagsMakeImpossibleIsToldWithThem) {
  EXPECT_THAT(error_with("arrivals:\n  rate: 0.0001\n", {.replicas = 2, .requests = 1'000'000}),
              HasSubstr(" s, with --replicas 2 and --requests 1000000"));
  EXPECT_THAT(error_with("arrivals:\n  kind: closed\n  users: 3\n", {.replicas = 1}),
              HasSubstr("s.yaml:3: arrivals.users: a closed loop needs at least one, with "
                        "--replicas 1"));
  EXPECT_THAT(error_with("preset: ref70\nsegregated: true\n", {.replicas = 1}),
              HasSubstr("s.yaml:2: segregated: changes nothing: --replicas leaves 1, in one pool"));
  EXPECT_EQ(error_with("preset: ref70\nsegregated: true\n", {.replicas = 3}), "");
}

TEST(ScenarioFile, KeysThatChangeNothingAreRefused) {
  constexpr const char* kTrace = "changes nothing: it counts where arrivals.kind is trace";
  const auto counts = [](const std::string& where) {
    return HasSubstr(": changes nothing: it counts " + where);
  };
  EXPECT_THAT(error_of("arrivals: {trace: x.csv}\n"),
              HasSubstr(std::string("s.yaml:1: arrivals.trace: ") + kTrace));
  EXPECT_THAT(error_of("arrivals:\n  kind: open\n  trace: x.csv\n"),
              HasSubstr(std::string("s.yaml:3: arrivals.trace: ") + kTrace));
  for (const char* const key : {"trace_speed: 2", "trace_skip: 3", "trace_requests: 9"}) {
    EXPECT_THAT(error_of(std::string("arrivals: {") + key + "}\n"), HasSubstr(kTrace)) << key;
    EXPECT_EQ(error_with(std::string("arrivals: {") + key + "}\n", {.trace = "x.csv"}), "");
  }
  EXPECT_THAT(
      error_of("arrivals: {kind: closed, users: 9, rate: 3}\n"),
      HasSubstr("s.yaml:1: arrivals.rate: changes nothing: it counts where arrivals.kind is "
                "semi_open or open"));
  EXPECT_THAT(error_of("arrivals: {kind: trace, trace: x, cv: 3}\n"),
              counts("where arrivals.kind"));
  EXPECT_THAT(error_of("arrivals: {users: 3}\n"), counts("where arrivals.kind is closed"));
  EXPECT_THAT(
      error_of("name: x\nsegregated: true\n"),
      HasSubstr("s.yaml:2: segregated: changes nothing: it counts where a replica has a pool "
                "other than general"));
  EXPECT_THAT(error_of("arms:\n  - policy: random\n    segregated: true\n"),
              HasSubstr("s.yaml:3: arms[0].segregated: changes nothing"));
  EXPECT_THAT(error_of("arms: [{policy: random, exchange_s: 1}]\n"),
              counts("where balancers.count is above 1"));
  EXPECT_THAT(error_of("balancers: {exchange_s: 1}\n"), counts("where balancers.count is above 1"));
  EXPECT_THAT(error_of("balancers: {event_delay_s: 1}\n"),
              counts("where balancers.index is exact"));
  EXPECT_THAT(error_of("balancers: {poll_s: 0, signal_delay_s: 1}\n"),
              counts("where balancers.poll_s is above 0"));
  EXPECT_THAT(error_of("workload: {turns: geometric, turns_sigma: 1}\n"),
              counts("where workload.turns is lognormal"));
  EXPECT_THAT(error_of("workload: {document_low: 9}\n"), counts("where workload.document_share"));
  EXPECT_THAT(error_of("workload: {system_prompt: {median: 9}}\n"),
              counts("where workload.system_prompts is above 0"));
  const std::string traced = "arrivals: {kind: trace, trace: x}\n";
  EXPECT_THAT(error_of(traced + "workload: {output: {median: 9}, max_context: 999}\n"),
              HasSubstr("s.yaml:2: workload.output: changes nothing: it counts unless"));
  EXPECT_THAT(error_of(traced + "measure: {requests: 9}\n"), counts("where measure.length_s is 0"));
  EXPECT_THAT(error_of("measure: {requests: 9, length_s: 9}\n"),
              counts("where measure.length_s is 0"));
}

TEST(ScenarioFile, KeysThatCountForAnArmOrAreSwitchedOffAreNot) {
  const char* const closed_loop_beside_a_trace =
      "arrivals: {kind: trace, trace: x}\nworkload: {output: {median: 9}}\n"
      "measure: {requests: 9, closed_loop_users: 4}\n";
  for (const char* const text :
       {"preset: ref70\nsegregated: true\n", "segregated: false\n",
        "balancers: {exchange_s: 0, event_delay_s: 0}\n",
        "balancers: {exchange_s: 1}\narms: [{policy: random}, {policy: random, balancers: 2}]\n",
        "balancers: {event_delay_s: 1}\narms: [{policy: random, index: exact}]\n",
        "preset: set_a\nsegregated: true\narrivals: {kind: closed, users: 9}\n",
        "workload: {document_share: 0, document_low: 9, system_prompts: 0, system_zipf: 2}\n",
        closed_loop_beside_a_trace}) {
    EXPECT_EQ(error_with(text, {}), "") << text;
  }
  EXPECT_EQ(error_with("arrivals: {rate: 9}\nworkload: {think_s: 3}\n", {.trace = "x.csv"}), "")
      << "the flag is in the place of what the file says";
}

TEST(ScenarioFile, BoundsInTheWrongOrderAndListsOfPresetsAreRefused) {
  EXPECT_THAT(error_of("workload:\n  turns_mean: 1\n  output: {low: 50, high: 20}\n"),
              HasSubstr("s.yaml:3: workload.output.low: is 50, above high, 20"));
  EXPECT_THAT(error_of("workload: {follow_up: {low: 40000}}\n"), HasSubstr("above high, 32000"));
  EXPECT_THAT(error_of("preset: [ref70]\n"), HasSubstr("s.yaml:1: preset: is not the name"));
}

TEST(ScenarioFile, TheDocumentListsTheKeysAsTheyAre) {
  std::ifstream in(POINTSMAN_SOURCE_DIR "/docs/scenario.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), scenario_markdown())
      << "docs/scenario.md is out of date: pointsman simulate run --keys > docs/scenario.md";
}

// The two published sets, spelled out: a file can say all that they are.
TEST(ScenarioFile, SpelledOutTheNamedSetsAreWhatTheyAreByName) {
  const std::string ref70 = R"(
name: ref70
replicas:
  - count: 6
    engine: {blocks: 40000, max_num_batched_tokens: 8192, max_num_seqs: 128, step_s: 0.0035, weights_s: 0.009,
             token_s: 70e-6, context_s: 30e-9, sequence_s: 10e-6, attention_ratio: 1.9e-5}
  - count: 1
    pool: long_context
    engine: {blocks: 40000, max_num_batched_tokens: 8192, max_num_seqs: 128, step_s: 0.0035, weights_s: 0.009,
             token_s: 70e-6, context_s: 30e-9, sequence_s: 10e-6, attention_ratio: 1.9e-5}
  - count: 1
    pool: long_generation
    engine: {blocks: 40000, max_num_batched_tokens: 8192, max_num_seqs: 128, step_s: 0.0035, weights_s: 0.009,
             token_s: 70e-6, context_s: 30e-9, sequence_s: 10e-6, attention_ratio: 1.9e-5}
balancers: {count: 4, poll_s: 1.5, saturation_kv: 0.9}
arrivals: {kind: semi_open, rate: 7.15, cv: 1.5}
workload:
  first_prompt: {median: 4000, sigma: 0.25, high: 32000}
  follow_up: {median: 770, sigma: 0.7, high: 32000}
  output: {median: 375, sigma: 1.2, low: 1, high: 4000}
  turns: lognormal
  turns_mean: 2.5
  turns_sigma: 0.4
  think_s: 13
  document_share: 0.0038
  document_low: 32000
  document_high: 110000
  long_generation_share: 0.005
  long_generation: {median: 5500, sigma: 0.5, low: 500, high: 16000}
  max_tokens: 4000
  long_max_tokens: 16384
  max_context: 131072
measure: {requests: 15000, warm_up: 0.2, overhead_s: 0.03}
)";
  const std::string set_a = R"(
name: set_a
replicas:
  - {count: 6, engine: {blocks: 27000, max_num_batched_tokens: 8192, max_num_seqs: 256, step_s: 0.003, weights_s: 0.01,
     token_s: 47.8e-6, context_s: 80e-9, sequence_s: 10e-6, attention_ratio: 3.3e-5}}
  - {count: 1, pool: long_context, engine: {blocks: 27000, max_num_seqs: 256, step_s: 0.003, weights_s: 0.01,
     token_s: 47.8e-6, context_s: 80e-9, sequence_s: 10e-6, attention_ratio: 3.3e-5}}
  - {count: 1, pool: long_generation, engine: {blocks: 27000, max_num_seqs: 256, step_s: 0.003, weights_s: 0.01,
     token_s: 47.8e-6, context_s: 80e-9, sequence_s: 10e-6, attention_ratio: 3.3e-5}}
balancers: {count: 4, poll_s: 2, saturation_kv: 0.9}
arrivals: {kind: semi_open, rate: 18, cv: 1}
workload:
  first_prompt: {median: 800, sigma: 1.2, high: 32000}
  follow_up: {median: 200, sigma: 1.0, high: 32000}
  output: {median: 250, sigma: 1.0, low: 1, high: 4000}
  turns: geometric
  turns_mean: 2.5
  think_s: 15
  document_share: 0.003
  document_low: 32000
  document_high: 120000
  long_generation_share: 0.01
  long_generation: {median: 5000, sigma: 0.5, low: 500, high: 16000}
  max_tokens: 4000
  long_max_tokens: 16384
  max_context: 131072
measure: {requests: 15000, warm_up: 0.2, overhead_s: 0.01}
)";
  for (const std::string& text : {ref70, set_a}) {
    const Scenario read = load(text).scenario;
    const Scenario named = *find_scenario_preset(read.name);
    for (const Key<Scenario>& key : scenario_keys()) {
      EXPECT_EQ(key.text(read), key.text(named)) << read.name << " " << key.path;
    }
    ASSERT_EQ(read.replicas.size(), named.replicas.size());
    for (std::size_t i = 0; i < read.replicas.size(); ++i) {
      EXPECT_EQ(read.replicas[i].pool, named.replicas[i].pool);
      for (const Key<ReplicaGroup>& key : replica_group_keys()) {
        EXPECT_EQ(key.text({.replica = read.replicas[i]}), key.text({.replica = named.replicas[i]}))
            << read.name << " " << key.path;
      }
    }
  }
}

TEST(ScenarioFile, EveryConstantOfAnEngineHasItsUnit) {
  for (const Key<ReplicaGroup>& key : replica_group_keys()) {
    if (!key.path.starts_with("engine.")) continue;
    const std::string unit = key.path.ends_with("_s") ? "seconds" : "";
    EXPECT_THAT(key.help, HasSubstr(unit)) << key.path;
  }
  // From the memory bandwidths, peak rates and sizes that docs/scenario.md names beside them.
  struct Published {
    std::string_view name;
    double token_us, weights_ms, context_ns, attention, blocks;
  };
  for (const Published& one : {Published{"8b_h100", 32, 6.4, 52, 3.3e-5, 26'000},
                               Published{"8b_a100", 80, 9.8, 80, 3.3e-5, 26'000},
                               Published{"70b_h100x4", 79, 15, 35, 1.9e-5, 25'700},
                               Published{"70b_a100x4", 226, 23, 54, 1.9e-5, 25'000}}) {
    const EngineConfig& engine = find_engine_preset(one.name)->config;
    EXPECT_DOUBLE_EQ(engine.token_s * 1e6, one.token_us) << one.name;
    EXPECT_DOUBLE_EQ(engine.weights_s * 1e3, one.weights_ms) << one.name;
    EXPECT_DOUBLE_EQ(engine.context_s * 1e9, one.context_ns) << one.name;
    EXPECT_DOUBLE_EQ(engine.attention_ratio, one.attention) << one.name;
    EXPECT_EQ(engine.blocks, one.blocks) << one.name;
  }
}

TEST(Scenario, MoreReplicasHaveTheSameLoadEach) {
  Scenario scenario = *find_scenario_preset("set_a");
  set_replicas(scenario, 16);
  EXPECT_EQ(scenario.replicas.size(), 16U);
  EXPECT_DOUBLE_EQ(scenario.arrivals.rate, 36);
  int general = 0;
  for (const ReplicaSpec& replica : scenario.replicas) {
    if (replica.pool == PoolPurpose::kGeneral) ++general;
  }
  EXPECT_EQ(general, 14) << "the special pools keep their sizes";
  EXPECT_EQ(scenario.measure.requests, 30'000U) << "as long as before";
  set_replicas(scenario, 1);
  ASSERT_EQ(scenario.replicas.size(), 1U);
  EXPECT_EQ(scenario.replicas[0].pool, PoolPurpose::kGeneral);
  EXPECT_DOUBLE_EQ(scenario.arrivals.rate, 2.25);
  EXPECT_EQ(scenario.measure.requests, 30'000U) << "as exact as before";
}

TEST(Scenario, SharingSetsTheShareOfFollowUps) {
  for (const char* const name : {"set_a", "ref70"}) {
    for (const double share : {0.0, 0.3, 0.6, 0.9}) {
      Scenario scenario = *find_scenario_preset(name);
      set_sharing(scenario, share);
      EXPECT_NEAR(1 - 1 / scenario.workload.expected_turns(), share, 1e-6) << name;
    }
  }
}

}  // namespace
}  // namespace pointsman::sim
