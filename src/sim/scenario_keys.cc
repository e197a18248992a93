#include "sim/scenario_keys.h"

#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "config/section_keys.h"
#include "sim/engine_config.h"

namespace pointsman::sim {
namespace {

constexpr double kDay = 86'400;

Duration to_duration(double seconds) {
  return Duration(std::llround(seconds * 1e9));
}

// A time in seconds within [low, high]; with `zero` given 0 is allowed too and means that.
template <typename Owner>
void add_seconds(std::vector<Key<Owner>>& table, std::string path, Duration& (*reach)(Owner&),
                 double low, double high, const char* help, const char* zero = nullptr) {
  Key<Owner> key;
  key.path = std::move(path);
  key.type = "seconds";
  key.allowed = to_text(low) + " to " + to_text(high);
  if (zero != nullptr) key.allowed += std::string(", or 0: ") + zero;
  key.help = help;
  key.read = [reach, low, high, zero, allowed = key.allowed](Owner& owner,
                                                             const YamlNode& node) -> Result<void> {
    const Result<std::string> text = schema_detail::scalar(node, "seconds, " + allowed);
    if (!text) return text.error();
    const std::optional<double> value = parse_number(*text);
    const bool fits =
        value && ((*value >= low && *value <= high) || (zero != nullptr && *value == 0));
    if (!fits) return schema_detail::wrong(*text, "seconds, " + allowed);
    reach(owner) = to_duration(*value);
    return {};
  };
  key.text = [reach](const Owner& owner) {
    return to_text(to_seconds(reach(const_cast<Owner&>(owner))));  // NOLINT(*-const-cast)
  };
  table.push_back(std::move(key));
}

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

constexpr std::array kPools = {Word{"general", PoolPurpose::kGeneral},
                               Word{"long_context", PoolPurpose::kLongContext},
                               Word{"long_generation", PoolPurpose::kLongGeneration}};
constexpr std::array kPhases = {Word{"random", PollPhase::kRandom},
                                Word{"synchronised", PollPhase::kSynchronised}};
constexpr std::array kIndexes = {Word{"own", IndexKind::kOwn}, Word{"shared", IndexKind::kShared},
                                 Word{"exact", IndexKind::kExact}};
constexpr std::array kTurnsLaws = {Word{"lognormal", TurnsLaw::kLognormal},
                                   Word{"geometric", TurnsLaw::kGeometric}};
constexpr std::array kArrivals = {
    Word{"semi_open", ArrivalKind::kSemiOpen}, Word{"open", ArrivalKind::kOpen},
    Word{"closed", ArrivalKind::kClosed}, Word{"trace", ArrivalKind::kTrace}};
constexpr std::array kFaults = {
    Word{"dies", FaultKind::kDies},       Word{"restarts", FaultKind::kRestarts},
    Word{"slows", FaultKind::kSlows},     Word{"stops_reporting", FaultKind::kStopsReporting},
    Word{"reports", FaultKind::kReports}, Word{"joins", FaultKind::kJoins}};

template <typename Owner, typename Value, std::size_t kCount>
void add_word(std::vector<Key<Owner>>& table, std::string path, Value& (*reach)(Owner&),
              const std::array<Word<Value>, kCount>& words, const char* help) {
  Key<Owner> key;
  key.path = std::move(path);
  key.type = "word";
  for (const Word<Value>& one : words) {
    if (!key.allowed.empty()) key.allowed += " | ";
    key.allowed += one.word;
  }
  key.help = help;
  key.read = [reach, &words, allowed = key.allowed](Owner& owner,
                                                    const YamlNode& node) -> Result<void> {
    const Result<std::string> text = schema_detail::scalar(node, allowed);
    if (!text) return text.error();
    for (const Word<Value>& one : words) {
      if (one.word != *text) continue;
      reach(owner) = one.value;
      return {};
    }
    return schema_detail::wrong(*text, allowed);
  };
  key.text = [reach, &words](const Owner& owner) -> std::string {
    const Value value = reach(const_cast<Owner&>(owner));  // NOLINT(*-const-cast)
    for (const Word<Value>& one : words) {
      if (one.value == value) return std::string(one.word);
    }
    return "";
  };
  table.push_back(std::move(key));
}

void add_law(std::vector<Key<Scenario>>& table, const std::string& prefix,
             LengthLaw& (*reach)(Scenario&), const char* what) {
  const std::string help = std::string("Median of ") + what + ", tokens; lognormal.";
  SectionKeys<Scenario, LengthLaw>(table, prefix + ".", reach)
      .add("median", &LengthLaw::median, 1.0, 1e7, help.c_str())
      .add("sigma", &LengthLaw::sigma, 0.0, 5.0, "Its spread: of the logarithm; 0: all alike.")
      .add("low", &LengthLaw::low, 1, 10'000'000, "Shorter ones are as long as this.")
      .add("high", &LengthLaw::high, 1, 10'000'000, "Longer ones are as long as this.");
}

bool any_text(const std::string&) {
  return true;
}

std::vector<Key<Scenario>> make_scenario_keys() {
  std::vector<Key<Scenario>> table;
  SectionKeys<Scenario, Scenario>(table, "", [](Scenario& s) -> Scenario& { return s; })
      .add("name", &Scenario::name, "text", "", &any_text, "For titles.")
      .add("segregated", &Scenario::segregated,
           "The replicas are in pools by purpose; false: all in one.");

  constexpr auto balancers = [](Scenario& s) -> BalancersSpec& { return s.balancers; };
  SectionKeys<Scenario, BalancersSpec>(table, "balancers.", balancers)
      .add("count", &BalancersSpec::count, 1, 1'024,
           "Routers in front of the replicas; each request goes to a random one.");
  add_seconds<Scenario>(
      table, "balancers.poll_s", [](Scenario& s) -> Duration& { return s.balancers.poll; }, 0.001,
      kDay, "Between two reports of a replica to a balancer.",
      "live, every replica is read right before each decision");
  add_word(
      table, "balancers.phase", +[](Scenario& s) -> PollPhase& { return s.balancers.phase; },
      kPhases, "When the balancers poll: each in a phase of its own, or all at once.");
  add_seconds<Scenario>(
      table, "balancers.signal_delay_s",
      [](Scenario& s) -> Duration& { return s.balancers.signal_delay; }, 0, 3'600,
      "From the moment that a report tells of to its arrival.");
  add_seconds<Scenario>(
      table, "balancers.exchange_s", [](Scenario& s) -> Duration& { return s.balancers.exchange; },
      0.001, kDay, "Between two exchanges of what the balancers have outstanding.", "none");
  add_word(
      table, "balancers.index", +[](Scenario& s) -> IndexKind& { return s.balancers.index; },
      kIndexes,
      "Who knows which prefixes are cached where: each balancer predicts from what it sent, one "
      "predicting index for all, or what the caches really hold, as their events tell.");
  add_seconds<Scenario>(
      table, "balancers.event_delay_s",
      [](Scenario& s) -> Duration& { return s.balancers.event_delay; }, 0, 3'600,
      "From a change of a cache to the exact index.");
  SectionKeys<Scenario, BalancersSpec>(table, "balancers.", balancers)
      .add("block_tokens", &BalancersSpec::block_tokens, 1, 65'536,
           "Tokens of one block of the index.")
      .add("index_bytes", &BalancersSpec::index_bytes, std::size_t{1} << 20, std::size_t{1} << 40,
           "Memory of each predicting index.");
  SectionKeys<Scenario, SegregationLimits>(
      table, "balancers.",
      [](Scenario& s) -> SegregationLimits& { return s.balancers.segregation; })
      .add("long_context_tokens", &SegregationLimits::long_context_tokens, 1, 100'000'000,
           "More prompt tokens make a request long; segregated, it goes to that pool.")
      .add("long_generation_tokens", &SegregationLimits::long_generation_tokens, 1, 100'000'000,
           "So does a higher limit on the output.");
  SectionKeys<Scenario, SaturationLimits>(
      table, "balancers.saturation_",
      [](Scenario& s) -> SaturationLimits& { return s.balancers.saturation; })
      .add("kv", &SaturationLimits::kv, 0.01, 1e9, "Live KV use at which a replica is saturated.")
      .add("queue", &SaturationLimits::queue, 1.0, 1e12, "Live queue at which it is, requests.")
      .add("prefill_tokens", &SaturationLimits::prefill_tokens, 1.0, 1e12,
           "Outstanding prefill at which it is; never below the request's own prompt.");

  add_word(
      table, "arrivals.kind", +[](Scenario& s) -> ArrivalKind& { return s.arrivals.kind; },
      kArrivals,
      "semi_open: conversations arrive, and a follow-up comes when its client has read the answer "
      "before and thought. open: nobody waits for answers. closed: a fixed number of users. "
      "trace: a file.");
  SectionKeys<Scenario, ArrivalsSpec>(table, "arrivals.",
                                      [](Scenario& s) -> ArrivalsSpec& { return s.arrivals; })
      .add("rate", &ArrivalsSpec::rate, 1e-6, 1e7,
           "Requests per second, follow-ups included (not of closed and trace).")
      .add("cv", &ArrivalsSpec::cv, 0.0, 100.0,
           "Coefficient of variation of the Gamma-distributed gaps between conversations; 1: "
           "Poisson.")
      .add("users", &ArrivalsSpec::users, 0, 10'000'000, "Of a closed loop.")
      .add("trace", &ArrivalsSpec::trace, "path", "from the folder of the scenario file", &any_text,
           "Mooncake JSONL, BurstGPT CSV, Azure LLM inference CSV or a decision log of `pointsman "
           "serve` "
           "(docs/decision_log.md); told by its first line.")
      .add("trace_speed", &ArrivalsSpec::trace_speed, 1e-6, 1e6,
           "2: the trace's requests come twice as fast.")
      .add("trace_skip", &ArrivalsSpec::trace_skip, 0, 4'000'000'000,
           "So many requests at the trace's beginning are left out, and the time until the next.")
      .add("trace_requests", &ArrivalsSpec::trace_requests, 1, 4'000'000'000,
           "Of the others the first so many.", "all");

  constexpr auto workload = [](Scenario& s) -> WorkloadSpec& { return s.workload; };
  add_law(
      table, "workload.first_prompt",
      [](Scenario& s) -> LengthLaw& { return s.workload.first_prompt; },
      "the new text of a conversation's first turn");
  add_law(
      table, "workload.follow_up", [](Scenario& s) -> LengthLaw& { return s.workload.follow_up; },
      "the new text of each later turn");
  add_law(
      table, "workload.output", [](Scenario& s) -> LengthLaw& { return s.workload.output; },
      "the answer");
  add_word(
      table, "workload.turns", +[](Scenario& s) -> TurnsLaw& { return s.workload.turns_law; },
      kTurnsLaws,
      "Turns of a conversation: max(1, round(mean · exp(sigma · z − sigma² / 2))), or geometric.");
  SectionKeys<Scenario, WorkloadSpec>(table, "workload.", workload)
      .add("turns_mean", &WorkloadSpec::turns_mean, 1e-6, 1'000.0,
           "The law's mean; of the geometric one at least 1.")
      .add("turns_sigma", &WorkloadSpec::turns_sigma, 0.0, 5.0, "Of the lognormal law.")
      .add("think_s", &WorkloadSpec::think_s, 0.0, kDay,
           "Mean pause before a follow-up; exponential.")
      .add("document_share", &WorkloadSpec::document_share, 0.0, 1.0,
           "Share of conversations that begin with a long document.")
      .add("document_low", &WorkloadSpec::document_low, 1, 10'000'000,
           "Its length is log-uniform from here, tokens,")
      .add("document_high", &WorkloadSpec::document_high, 1, 10'000'000, "to here.")
      .add("long_generation_share", &WorkloadSpec::long_generation_share, 0.0, 1.0,
           "Share of turns that ask for a long generation.");
  add_law(
      table, "workload.long_generation",
      [](Scenario& s) -> LengthLaw& { return s.workload.long_generation; }, "a long generation");
  SectionKeys<Scenario, WorkloadSpec>(table, "workload.", workload)
      .add("max_tokens", &WorkloadSpec::max_tokens, 1, 10'000'000,
           "The client's limit on an ordinary answer,")
      .add("long_max_tokens", &WorkloadSpec::long_max_tokens, 1, 10'000'000,
           "and on a long generation.")
      .add("system_prompts", &WorkloadSpec::system_prompts, 1, 1'000'000,
           "Different system prompts that stand before first prompts.", "none")
      .add("system_zipf", &WorkloadSpec::system_zipf, 0.0, 10.0,
           "The k-th is used in proportion to k to the power of minus this.")
      .add("system_share", &WorkloadSpec::system_share, 0.0, 1.0,
           "Share of conversations with a system prompt.");
  add_law(
      table, "workload.system_prompt",
      [](Scenario& s) -> LengthLaw& { return s.workload.system_prompt; }, "a system prompt");
  SectionKeys<Scenario, WorkloadSpec>(table, "workload.", workload)
      .add("max_context", &WorkloadSpec::max_context, 64, 100'000'000,
           "A conversation ends before prompt and answer are longer.");

  constexpr auto measure = [](Scenario& s) -> MeasureSpec& { return s.measure; };
  SectionKeys<Scenario, MeasureSpec>(table, "measure.", measure)
      .add("requests", &MeasureSpec::requests, 1, kMostRequests,
           "Arrivals end when so many are expected to have come, at the given rate.");
  add_seconds<Scenario>(
      table, "measure.length_s", [](Scenario& s) -> Duration& { return s.measure.length; }, 0.001,
      kLongestRunSeconds, "For how long requests arrive.", "by `requests`");
  SectionKeys<Scenario, MeasureSpec>(table, "measure.", measure)
      .add("warm_up", &MeasureSpec::warm_up, 0.0, 0.95,
           "Share of that time whose requests are not measured.");
  add_seconds<Scenario>(
      table, "measure.overhead_s", [](Scenario& s) -> Duration& { return s.measure.overhead; }, 0,
      60, "Added to each time to first token: network, parsing, tokenizing.");
  SectionKeys<Scenario, MeasureSpec>(table, "measure.", measure)
      .add("goodput_ttft_s", &MeasureSpec::goodput_ttft_s, 0.001, 1e6,
           "A request is good with at most this time to first token,")
      .add("goodput_tpot_s", &MeasureSpec::goodput_tpot_s, 0.0001, 1e6,
           "and at most this time per further output token.", "any")
      .add("closed_loop_users", &MeasureSpec::closed_loop_users, 1, 100'000,
           "Users per replica of a second run, a closed loop without thinking, whose completions "
           "per second are measured.",
           "no such run");
  return table;
}

std::vector<Key<ReplicaGroup>> make_replica_group_keys() {
  std::vector<Key<ReplicaGroup>> table;
  SectionKeys<ReplicaGroup, ReplicaGroup>(table, "", [](ReplicaGroup& g) -> ReplicaGroup& {
    return g;
  }).add("count", &ReplicaGroup::count, 1, 8'192, "So many replicas are alike.");
  add_word(
      table, "pool", +[](ReplicaGroup& g) -> PoolPurpose& { return g.replica.pool; }, kPools,
      "Their pool where the run is segregated.");
  SectionKeys<ReplicaGroup, ReplicaSpec>(table, "",
                                         [](ReplicaGroup& g) -> ReplicaSpec& { return g.replica; })
      .add("weight", &ReplicaSpec::weight, 0.001, 1'000.0, "Capacity that balancers are told.")
      .add("slowness", &ReplicaSpec::slowness, 0.01, 1'000.0,
           "Factor on the time of every step; balancers are not told.");
  SectionKeys<ReplicaGroup, EngineConfig>(
      table, "engine.", [](ReplicaGroup& g) -> EngineConfig& { return g.replica.engine; })
      .add("blocks", &EngineConfig::blocks, 1, 100'000'000,
           "KV blocks of 16 tokens, what the memory has left beside the weights: as the engine "
           "says at "
           "its start.")
      .add("max_num_batched_tokens", &EngineConfig::max_num_batched_tokens, 1, 10'000'000,
           "Tokens computed in one step: vLLM's flag of that name.")
      .add("max_num_seqs", &EngineConfig::max_num_seqs, 1, 100'000,
           "Requests running at once: vLLM's flag of that name.")
      .add("prefix_caching", &EngineConfig::prefix_caching,
           "Requests find what others computed; balancers are not told.")
      .add("step_s", &EngineConfig::step_s, 0.0, 10.0,
           "Of each step, seconds: scheduling, launch, sampling. An estimate.")
      .add(
          "weights_s", &EngineConfig::weights_s, 0.0, 10.0,
          "Reading the weights once, seconds: their bytes over 70 to 80 % of the memory bandwidth.")
      .add("token_s", &EngineConfig::token_s, 1e-9, 1.0,
           "Computing a token, seconds: 2 FLOP per parameter over 45 to 55 % of the peak rate.")
      .add("context_s", &EngineConfig::context_s, 0.0, 1.0,
           "Reading the KV of one token of a decode's context, seconds: 128 KiB (8B) or 320 KiB "
           "(70B) over the memory bandwidth.")
      .add("sequence_s", &EngineConfig::sequence_s, 0.0, 1.0,
           "Per request in the step, seconds: its bookkeeping and sampling. An estimate.")
      .add("attention_ratio", &EngineConfig::attention_ratio, 0.0, 1.0,
           "Attention FLOP of one pair of query and context token over the linear FLOP of a token, "
           "from the model's shape.");
  return table;
}

std::vector<Key<FaultSpec>> make_fault_keys() {
  std::vector<Key<FaultSpec>> table;
  add_word(
      table, "kind", +[](FaultSpec& f) -> FaultKind& { return f.kind; }, kFaults,
      "dies: all that it runs is lost, and its cache; restarts: is back, cold; slows: steps take "
      "`factor` times as long as at first; stops_reporting and reports; joins: was not there "
      "before.");
  add_seconds<FaultSpec>(
      table, "at_s", [](FaultSpec& f) -> Duration& { return f.at; }, 0, kLongestRunSeconds,
      "Since the start of the run.");
  SectionKeys<FaultSpec, FaultSpec>(table, "", [](FaultSpec& f) -> FaultSpec& { return f; })
      .add("replica", &FaultSpec::replica, 0, 8'191, "Which one, from 0, in the order of the file.")
      .add("factor", &FaultSpec::factor, 0.01, 1'000.0, "Of slows, which needs it.");
  return table;
}

// A key of an arm: that of the scenario's balancers, which the arm then replaces.
template <typename Value>
Key<Arm> arm_key(std::string_view path, std::string_view scenario_path,
                 std::optional<Value> Arm::* member, Value& (*reach)(Scenario&)) {
  Key<Arm> key;
  for (const Key<Scenario>& one : scenario_keys()) {
    if (one.path != scenario_path) continue;
    key.type = one.type;
    key.allowed = one.allowed;
    key.help = "Instead of `" + one.path + "`.";
    key.read = [read = one.read, member, reach](Arm& arm, const YamlNode& node) -> Result<void> {
      Scenario scenario;
      Result<void> outcome = read(scenario, node);
      if (outcome) arm.*member = reach(scenario);
      return outcome;
    };
    key.text = [text = one.text, member, reach](const Arm& arm) -> std::string {
      if (!(arm.*member)) return "";
      Scenario scenario;
      reach(scenario) = *(arm.*member);
      return text(scenario);
    };
  }
  key.path = path;
  return key;
}

// A saturation limit of an arm: the others then are the shipped ones.
Key<Arm> saturation_key(std::string_view name, double SaturationLimits::* member) {
  const std::string path = "saturation_" + std::string(name);
  Key<Arm> key;
  for (const Key<Scenario>& one : scenario_keys()) {
    if (one.path != "balancers." + path) continue;
    key.type = one.type;
    key.allowed = one.allowed;
    key.read = [read = one.read, member](Arm& arm, const YamlNode& node) -> Result<void> {
      Scenario scenario;
      Result<void> outcome = read(scenario, node);
      if (!outcome) return outcome;
      if (!arm.saturation) arm.saturation.emplace();
      (*arm.saturation).*member = scenario.balancers.saturation.*member;
      return {};
    };
    key.text = [member](const Arm& arm) -> std::string {
      return arm.saturation ? to_text((*arm.saturation).*member) : "";
    };
  }
  key.path = path;
  key.help = "Instead of `balancers." + path + "`; where one is given, the others are the shipped.";
  return key;
}

std::vector<Key<Arm>> make_arm_keys() {
  std::vector<Key<Arm>> table;
  SectionKeys<Arm, Arm>(table, "", [](Arm& a) -> Arm& {
    return a;
  }).add("label", &Arm::label, "text", "", &any_text, "Beside the policy's name.");
  table.push_back(
      arm_key<std::uint32_t>("balancers", "balancers.count", &Arm::balancers,
                             [](Scenario& s) -> std::uint32_t& { return s.balancers.count; }));
  table.push_back(arm_key<Duration>("poll_s", "balancers.poll_s", &Arm::poll,
                                    [](Scenario& s) -> Duration& { return s.balancers.poll; }));
  table.push_back(arm_key<PollPhase>("phase", "balancers.phase", &Arm::phase,
                                     [](Scenario& s) -> PollPhase& { return s.balancers.phase; }));
  table.push_back(arm_key<Duration>("exchange_s", "balancers.exchange_s", &Arm::exchange,
                                    [](Scenario& s) -> Duration& { return s.balancers.exchange; }));
  table.push_back(arm_key<IndexKind>("index", "balancers.index", &Arm::index,
                                     [](Scenario& s) -> IndexKind& { return s.balancers.index; }));
  table.push_back(
      arm_key<Duration>("event_delay_s", "balancers.event_delay_s", &Arm::event_delay,
                        [](Scenario& s) -> Duration& { return s.balancers.event_delay; }));
  table.push_back(saturation_key("kv", &SaturationLimits::kv));
  table.push_back(saturation_key("queue", &SaturationLimits::queue));
  table.push_back(saturation_key("prefill_tokens", &SaturationLimits::prefill_tokens));
  table.push_back(arm_key<bool>("segregated", "segregated", &Arm::segregated,
                                [](Scenario& s) -> bool& { return s.segregated; }));
  return table;
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, "\\");
  }
  return text;
}

template <typename Owner>
void append_rows(const std::vector<Key<Owner>>& keys, const Owner& defaults, std::string& out) {
  out += "| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n";
  for (const Key<Owner>& key : keys) {
    const std::string text = key.text(defaults);
    out += "| `" + key.path + "` | " + key.type + " | " +
           (text.empty() || text == "\"\"" ? "none" : "`" + cell(text) + "`") + " | " +
           cell(key.allowed) + " | " + cell(key.help) + " |\n";
  }
}

}  // namespace

const std::vector<Key<Scenario>>& scenario_keys() {
  static const std::vector<Key<Scenario>> keys = make_scenario_keys();
  return keys;
}

const std::vector<Key<ReplicaGroup>>& replica_group_keys() {
  static const std::vector<Key<ReplicaGroup>> keys = make_replica_group_keys();
  return keys;
}

const std::vector<Key<FaultSpec>>& fault_keys() {
  static const std::vector<Key<FaultSpec>> keys = make_fault_keys();
  return keys;
}

const std::vector<Key<Arm>>& arm_keys() {
  static const std::vector<Key<Arm>> keys = make_arm_keys();
  return keys;
}

std::string scenario_markdown() {
  std::string out = R"(<!-- Made by `pointsman simulate run --keys`; a test holds the two equal. -->
# Scenario files

`pointsman simulate run FILE` runs what a scenario file says: replicas and their engines, the routers in front of them,
the workload, what is measured, faults. Everything has a default; a file may start from a named scenario and change
what it likes:

```yaml
preset: ref70
balancers: {count: 2, index: exact, exchange_s: 0.05}
workload: {think_s: 5}
arrivals: {rate: 9}
arms:
  - policy: least_work
  - {policy: least_kv, label: live, poll_s: 0}
```

A dotted key is a key within a map: `balancers.poll_s` is `balancers: {poll_s: …}`. Keys that end in `_s` are seconds.
Unknown keys, keys that come twice, values out of range and keys that change nothing (a trace where arrivals are of another
kind) are errors with file and line. What must hold between values is checked of the scenario that is run: `--replicas 2`
of a file whose faults name replica 5 is an error as well.

| key | type | default | allowed | meaning |
|---|---|---|---|---|
| `preset` | word | none | )";
  for (const ScenarioPreset& preset : scenario_presets()) {
    if (!out.ends_with("| ")) out += " \\| ";
    out += preset.name;
  }
  out +=
      R"( | A named scenario that the file starts from. |
| `replicas` | list of groups | those of the preset, or 8 with the engine `8b_a100` | | See below. |
| `faults` | list of faults | none | | See below. |
| `arms` | list of arms | none | | Policies to compare, where `--policy` names none. See below. |

## All other keys

Defaults are those of a file without a preset.

)";
  append_rows(scenario_keys(), Scenario{}, out);
  out +=
      R"(
A closed loop ends when `measure.requests` have been sent, warm-up included, unless `measure.length_s` says when: how long it
takes is what the answers make of it.

Conversations that the engines are too small for are counted, in a note and in the JSON file: a first turn that is longer
than `workload.max_context`, or than the KV cache of the smallest replica, is cut (`requests_cut`: a system prompt to half
of that, the answer to a quarter, then the prompt to the rest), and before a later turn that would be longer the
conversation ends (`conversations_cut`).

## Traces

The first line tells the format. Columns are found by their names, in any order; they may be quoted.

| format | columns or keys | what requests share |
|---|---|---|
| Mooncake JSONL | `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | the blocks of 512 tokens with the same ids |
| BurstGPT CSV | `Timestamp` (s), `Request tokens`, `Response tokens`, perhaps `Session ID` | with `Session ID` the requests of a session are taken to continue one text; without it (as in the first published files) nothing |
| Azure LLM inference CSV | `TIMESTAMP` (a date and time), `ContextTokens`, `GeneratedTokens` | nothing |
| decision log | [its page](decision_log.md) | what the router saw |

A trace is a regular file of text, since each run reads it anew; pipes and compressed files are refused.

Times count from the first request that is taken. What is not taken as it stands is counted, in a note and in the JSON file:

- **Lines without prompt or answer tokens** are left out (`trace_left_out`): in BurstGPT those are requests that failed.
- **Requests longer than `workload.max_context`**, or than the KV cache of the smallest replica, are cut (`trace_cut`): the
  answer to a quarter of that at most, then the prompt to the rest.
- **Lines must come in the order of time.** One that lies up to 10 s back comes with the line before it (`trace_late`); farther
  back is an error with the line: sort the file. Of the decision log the order does not matter.

A trace may last for )" +
      to_text(kLongestRunSeconds) +
      R"( s at its `trace_speed`. All keys of `workload` but `max_context` say nothing of a trace.

## Replicas

Each entry of `replicas` is a group of equal replicas. Its `engine` is a name, or a map of the keys below, in which
`preset` may name the engine to start from. Known engines:

| engine | what | `blocks` | `max_num_seqs` | `step_s`, ms | `weights_s`, ms | `token_s`, µs | `context_s`, ns | `sequence_s`, µs | `attention_ratio`, 10⁻⁶ |
|---|---|---|---|---|---|---|---|---|---|
)";
  for (const EnginePreset& preset : engine_presets()) {
    const EngineConfig& engine = preset.config;
    out.append("| `").append(preset.name).append("` | ").append(preset.what);
    for (const double constant :
         {static_cast<double>(engine.blocks), static_cast<double>(engine.max_num_seqs),
          engine.step_s * 1e3, engine.weights_s * 1e3, engine.token_s * 1e6, engine.context_s * 1e9,
          engine.sequence_s * 1e6, engine.attention_ratio * 1e6}) {
      out.append(" | ").append(to_text(std::round(constant * 1e6) / 1e6));
    }
    out += " |\n";
  }
  out += R"(
All have `max_num_batched_tokens: 8192`. The constants of the first four follow from public data sheets and the models'
shapes, as the keys below say; those of the last two are of the workloads with the same names. None was measured:
[`simulate calibrate`](experiments/calibrate.md) fits them to engines of your own. A block has 16 tokens, as vLLM's on
GPUs; that and the rules of the scheduler are the model itself, not keys.
)";
  out += R"(
```yaml
replicas:
  - {count: 6, engine: 8b_h100}
  - {count: 2, pool: long_context, engine: {preset: 8b_h100, blocks: 50000}}
```

A step takes `step_s + max(weights_s, token_s · tokens) + context_s · Σ decode context + sequence_s · requests +
token_s · attention_ratio · Σ prefill query-context pairs`.

)";
  append_rows(replica_group_keys(), ReplicaGroup{}, out);
  out += R"(
## Faults

What runs on a replica that dies is lost, and the routers know at once. A request whose client has seen nothing yet is sent
once more elsewhere, as the proxy does; any other, and one that is lost twice or finds no replica left, fails. A client
whose request failed gives its conversation up; in a closed loop it begins another a second later. A replica that stops
reporting goes on serving: its last report ages until it counts as unknown. `slows` with `factor: 1` is the end of
slowness, and one that joins is unknown to all until then.

```yaml
faults:
  - {kind: dies, at_s: 60, replica: 1}
  - {kind: restarts, at_s: 120, replica: 1}
```

)";
  out +=
      "Each must change something: who dies lives, who restarts has died, `slows` has its "
      "`factor`, and all\ncome before the arrivals end. When those of a trace or of a closed loop "
      "end is known after the run: then\n`faults_missed` counts what came later, and a note says "
      "so.\n\n";
  append_rows(fault_keys(), FaultSpec{}, out);
  out += R"(
## Arms

Each entry of `arms` is a map: a policy ([policies.md](policies.md)), `- policy: least_kv`, and what it changes in the
scenario. A name alone is no entry. Of two entries with the same policy and `label`, the labels get numbers: `#1`, `#2`.

| key | type | default | allowed | meaning |
|---|---|---|---|---|
| `policy` | policy | | a name, or a map | As in the configuration. |

)";
  append_rows(arm_keys(), Arm{}, out);
  return out;
}

}  // namespace pointsman::sim
