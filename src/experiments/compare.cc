#include "experiments/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "config/units.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/cluster.h"
#include "sim/scenario_keys.h"

namespace pointsman::sim {
namespace {

// What the keys' table says of `owner`, nested as in a file.
template <typename Owner>
Record keys_record(const std::vector<Key<Owner>>& keys, const Owner& owner,
                   const std::string& prefix = {}) {
  Record record;
  for (const Key<Owner>& key : keys) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string rest = key.path.substr(prefix.size());
    const std::size_t point = rest.find('.');
    if (point != std::string::npos) {
      const std::string section = rest.substr(0, point);
      if (record.find(section) == nullptr) {
        record.set(section, keys_record(keys, owner, prefix + section + "."));
      }
      continue;
    }
    const std::string text = key.text(owner);
    if (text == "true" || text == "false") {
      record.set(rest, text == "true");
    } else if (key.type == "bytes") {
      record.set(rest, static_cast<std::uint64_t>(parse_bytes(text).value_or(0)));
    } else if (const std::optional<double> number = parse_number(text);
               number && key.type != "text" && key.type != "path") {
      record.set(rest, *number);
    } else {
      record.set(rest, text == "\"\"" ? std::string() : text);
    }
  }
  return record;
}

bool same(const ReplicaSpec& a, const ReplicaSpec& b) {
  const ReplicaGroup left{1, a};
  const ReplicaGroup right{1, b};
  for (const Key<ReplicaGroup>& key : replica_group_keys()) {
    if (key.text(left) != key.text(right)) return false;
  }
  return true;
}

Estimate mean_of(MeasureMean kind, std::span<const double> values) {
  switch (kind) {
    case MeasureMean::kGeometric:
      return geometric_mean(values);
    case MeasureMean::kArithmetic:
      return arithmetic_mean(values);
    case MeasureMean::kShare:
      return share_above(values, 0);
  }
  return {};
}

Value option_value(const OptionValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::string>(value);
}

Record options_record(const OptionMap& options) {
  Record record;
  for (const auto& [name, value] : options) record.set(name, option_value(value));
  return record;
}

Record stage_record(const StageSpec& stage) {
  Record record;
  record.set("type", stage.type).set("weight", stage.weight);
  for (const auto& [name, value] : stage.options) record.set(name, option_value(value));
  return record;
}

Value stages(const std::vector<StageSpec>& list) {
  Value::List records;
  for (const StageSpec& stage : list) records.emplace_back(stage_record(stage));
  return records;
}

Value policy_value(const PolicySpec& policy) {
  if (!policy.preset.empty()) {
    return Record().set("preset", policy.preset).set("options", options_record(policy.options));
  }
  return Record()
      .set("filters", stages(policy.filters))
      .set("sampler", stage_record(policy.sampler))
      .set("scorers", stages(policy.scorers))
      .set("picker", stage_record(policy.picker));
}

// Appends the option, unless there is one of that name.
void set_default(OptionMap& options, std::string_view name, double value) {
  for (const auto& held : options) {
    if (held.first == name) return;
  }
  options.emplace_back(name, value);
}

// The mean of what is a number; 0 where nothing is.
double finite_mean(std::span<const RunResult> results, double RunResult::* value) {
  double sum = 0;
  std::size_t count = 0;
  for (const RunResult& result : results) {
    if (!std::isfinite(result.*value)) continue;
    sum += result.*value;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

// Fewer requests than this share of those asked for are a thing to be said.
constexpr double kOfferedEnough = 0.95;
// Of a run's length. Conversations that last longer lose a good part of their turns at its end, and
// had few at its beginning.
constexpr double kLongConversation = 0.1;

// Why fewer requests came than the rate asks for; empty where they did.
std::string offered_note(const Scenario& scenario, const Arm& arm,
                         std::span<const RunResult> results) {
  const ArrivalsSpec& arrivals = scenario.arrivals;
  if (arrivals.kind != ArrivalKind::kSemiOpen && arrivals.kind != ArrivalKind::kOpen) return "";
  const double offered = finite_mean(results, &RunResult::offered_rps);
  if (offered <= 0 || offered >= kOfferedEnough * arrivals.rate) return "";
  char text[320];
  std::snprintf(text, sizeof text, "%s: %.4g requests/s came where arrivals.rate is %.4g (%.2f): ",
                arm_name(arm).c_str(), offered, arrivals.rate, offered / arrivals.rate);
  std::string note = text;
  std::string reasons;
  const auto add = [&reasons](const std::string& reason) {
    reasons += (reasons.empty() ? "" : "; ") + reason;
  };
  if (arrivals.kind == ArrivalKind::kSemiOpen &&
      finite_mean(results, &RunResult::over_capacity) > 0) {
    add("above capacity answers come late, and clients wait for them");
  }
  if (const double cut = finite_mean(results, &RunResult::conversations_cut); cut > 0) {
    std::snprintf(text, sizeof text,
                  "%.1f conversations a run ended before a turn that the engines and "
                  "workload.max_context do not hold",
                  cut);
    add(text);
  }
  if (finite_mean(results, &RunResult::failed) > 0) {
    add("clients whose request failed gave up");
  }
  const double pause =
      scenario.workload.think_s +
      (arrivals.kind == ArrivalKind::kSemiOpen ? finite_mean(results, &RunResult::e2e_mean_s) : 0);
  const double lasts = (scenario.workload.expected_turns() - 1) * pause;
  const double length = scenario.measure.length > Duration{}
                            ? to_seconds(scenario.measure.length)
                            : scenario.measure.requests / arrivals.rate;
  if (lasts > kLongConversation * length) {
    std::snprintf(text, sizeof text,
                  "a conversation lasts about %.3g s and requests come for %.3g s, so that many a "
                  "turn would come later; a longer run has more of them",
                  lasts, length);
    add(text);
  }
  return note + (reasons.empty() ? "so short a run is a matter of chance" : reasons) + ".";
}

}  // namespace

Arm preset_arm(std::string_view preset, std::string_view label, OptionMap options) {
  Arm arm;
  arm.policy.preset = preset;
  arm.policy.options = std::move(options);
  arm.label = label;
  return arm;
}

Arm configured(Arm arm, const Scenario& scenario) {
  const std::uint32_t balancers = arm.balancers.value_or(scenario.balancers.count);
  if (arm.policy.preset != "least_work" || balancers < 2) return arm;
  set_default(arm.policy.options, "routers", balancers);
  return arm;
}

std::string arm_name(const Arm& arm) {
  const std::string policy = arm.policy.preset.empty() ? "stages" : arm.policy.preset;
  return arm.label.empty() ? policy : policy + " " + arm.label;
}

Result<void> check_arms(std::span<const Arm> arms, const Registry& registry) {
  for (const Arm& arm : arms) {
    const auto built = registry.build(arm.policy);
    if (!built) return built.error();
  }
  return {};
}

std::vector<std::vector<RunResult>> run_arms(const Scenario& scenario, std::span<const Arm> arms,
                                             const Registry& registry,
                                             const CompareOptions& options) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  // Seeds outside, so that the first figures of all arms come early where a run is cut short.
  const std::vector<RunResult> flat = run_parallel(
      arms.size() * seeds, options.jobs,
      [&](std::size_t i) {
        return run(scenario, arms[i % arms.size()], registry, options.first_seed + i / arms.size());
      },
      [&](std::size_t ended) {
        if (options.progress) options.progress(ended, arms.size() * seeds);
      });
  std::vector<std::vector<RunResult>> results(arms.size());
  for (std::size_t i = 0; i < flat.size(); ++i) results[i % arms.size()].push_back(flat[i]);
  return results;
}

Record arm_row(const Arm& arm, std::span<const RunResult> results) {
  Record row;
  row.set("policy", arm.policy.preset.empty() ? "stages" : arm.policy.preset);
  row.set("arm", arm.label);
  std::vector<double> values;
  for (const Measure& measure : measures()) {
    values.clear();
    for (const RunResult& result : results) {
      if (std::isfinite(result.*measure.value)) values.push_back(result.*measure.value);
    }
    if (values.empty()) {
      row.set_unknown(measure.key);
      continue;
    }
    row.set(measure.key, within(mean_of(measure.mean, values), measure.least, measure.most));
  }
  return row;
}

Value arms_value(std::span<const Arm> arms) {
  Value::List list;
  for (const Arm& arm : arms) {
    Record record;
    record.set("policy", policy_value(arm.policy)).set("label", arm.label);
    for (const Key<Arm>& key : arm_keys()) {
      const std::string text = key.text(arm);
      if (key.path == "label" || text.empty()) continue;
      if (text == "true" || text == "false") {
        record.set(key.path, text == "true");
      } else if (const std::optional<double> number = parse_number(text)) {
        record.set(key.path, *number);
      } else {
        record.set(key.path, text);
      }
    }
    list.emplace_back(std::move(record));
  }
  return list;
}

std::string pools_of(const Record& row) {
  char text[48];
  std::snprintf(text, sizeof text, "%.0f/%.0f/%.0f", row.number("replicas_general"),
                row.number("replicas_long_context"), row.number("replicas_long_generation"));
  return text;
}

void number_alike(std::vector<Arm>& arms) {
  std::map<std::string, int> count;
  for (const Arm& arm : arms) ++count[arm_name(arm)];
  std::map<std::string, int> number;
  for (Arm& arm : arms) {
    const std::string name = arm_name(arm);
    if (count[name] < 2) continue;
    arm.label += (arm.label.empty() ? "#" : " #") + std::to_string(++number[name]);
  }
}

Estimate measure_ratio(std::span<const RunResult> above, std::span<const RunResult> below,
                       double RunResult::* value) {
  std::vector<double> ours;
  std::vector<double> theirs;
  for (const RunResult& result : above) ours.push_back(result.*value);
  for (const RunResult& result : below) theirs.push_back(result.*value);
  return paired_ratio(ours, theirs);
}

Record scenario_record(const Scenario& scenario) {
  Record record = keys_record(scenario_keys(), scenario);
  Value::List replicas;
  for (std::size_t i = 0; i < scenario.replicas.size();) {
    ReplicaGroup group{0, scenario.replicas[i]};
    for (; i < scenario.replicas.size() && same(scenario.replicas[i], group.replica); ++i) {
      ++group.count;
    }
    replicas.emplace_back(keys_record(replica_group_keys(), group));
  }
  record.set("replicas", std::move(replicas));
  Value::List faults;
  for (const FaultSpec& fault : scenario.faults) {
    faults.emplace_back(keys_record(fault_keys(), fault));
  }
  return record.set("faults", std::move(faults));
}

std::vector<Column> arm_columns(const Scenario& scenario) {
  char goodput[64];
  std::snprintf(goodput, sizeof goodput, "good/s (TTFT<=%g s)", scenario.measure.goodput_ttft_s);
  std::vector<Column> columns = {
      {"policy", "policy"},
      {"arm", "arm"},
      {"ttft_p50_s", "p50 TTFT ms", 0, 1'000},
      {"ttft_p99_s", "p99 TTFT ms", 0, 1'000},
      {"ttft_p99_short_s", "p99 short ms", 0, 1'000},
      {"prefix_hit_rate", "hit %", 1, 100},
      {"goodput_rps", goodput, 2},
      {"cv_load", "CV of load", 2},
  };
  if (scenario.measure.closed_loop_users > 0) {
    columns.push_back({"closed_loop_rps", "closed loop/s", 2});
  }
  return columns;
}

std::vector<Column> engine_columns() {
  return {{"policy", "policy"},
          {"arm", "arm"},
          {"mean_kv", "KV %", 1, 100},
          {"busy_share", "busy %", 1, 100},
          {"preemptions", "preempted", 1},
          {"valve_openings", "valve openings", 0},
          {"poll_s", "poll s", 2},
          {"balancers", "balancers"},
          {"pools", "pools"}};
}

std::string options_text(const Arm& arm) {
  std::string text;
  for (const auto& [name, value] : arm.policy.options) {
    JsonWriter json;
    option_value(value).write(json);
    text += (text.empty() ? arm_name(arm) + ": " : ", ") + name + ": " + json.take();
  }
  return text;
}

std::vector<std::string> arm_notes(const Scenario& scenario, std::span<const Arm> arms,
                                   std::span<const std::vector<RunResult>> results) {
  std::vector<std::string> notes;
  // A trace's lines are the same in every run.
  if (!results.empty() && !results.front().empty()) {
    const RunResult& one = results.front().front();
    std::string text;
    const auto add = [&text](double count, std::string_view noun, const char* what) {
      if (!(count > 0)) return;
      text += text.empty() ? "The trace: " : "; ";
      text.append(counted(static_cast<std::uint64_t>(count), noun)).append(what);
    };
    add(one.trace_left_out, "line", " without prompt or answer tokens left out");
    add(one.trace_late, "line", " out of the order of time taken with the line before");
    add(one.trace_cut, "request", " cut to what the engines and workload.max_context hold");
    if (!text.empty()) notes.push_back(text + ".");
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const double cut = finite_mean(results[i], &RunResult::requests_cut);
    if (!(cut > 0)) continue;
    char text[160];
    std::snprintf(text, sizeof text,
                  "%.1f requests a run were cut to what the engines and workload.max_context hold.",
                  cut);
    notes.emplace_back(text);
    // With the rate of conversations given, the other arms have the same ones.
    break;
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    std::size_t over = 0;
    double growth = 0;
    double failed = 0;
    for (const RunResult& result : results[i]) {
      if (result.over_capacity > 0) {
        ++over;
        growth += result.queue_growth_rps;
      }
      failed += result.failed;
    }
    char text[240];
    const auto nothing = [](const RunResult& result) {
      return result.requests == 0 && result.failed == 0;
    };
    const auto at_once = [](const RunResult& result) {
      return result.requests > 0 && !std::isfinite(result.offered_rps);
    };
    if (std::ranges::any_of(results[i], nothing)) {
      std::snprintf(text, sizeof text,
                    "%s: in %td of %zu runs no request came in the measured time: make the run "
                    "longer, or measure.warm_up less.",
                    arm_name(arms[i]).c_str(), std::ranges::count_if(results[i], nothing),
                    results[i].size());
      notes.emplace_back(text);
    }
    if (std::ranges::any_of(results[i], at_once)) {
      notes.push_back(arm_name(arms[i]) +
                      ": all measured requests came at once, so there are no rates and no shares "
                      "of time.");
    }
    if (over > 0) {
      std::snprintf(text, sizeof text,
                    "%s: above capacity in %zu of %zu runs; the queue grew by %.2f requests/s. Its "
                    "times say how long the run was.",
                    arm_name(arms[i]).c_str(), over, results[i].size(),
                    growth / static_cast<double>(over));
      notes.emplace_back(text);
    }
    if (std::string note = offered_note(scenario, arms[i], results[i]); !note.empty()) {
      notes.push_back(std::move(note));
    }
    if (const double missed = finite_mean(results[i], &RunResult::faults_missed); missed > 0) {
      std::snprintf(text, sizeof text,
                    "%s: %.1f of %zu faults a run came after the last request, and changed "
                    "nothing that is measured.",
                    arm_name(arms[i]).c_str(), missed, scenario.faults.size());
      notes.emplace_back(text);
    }
    if (failed > 0) {
      std::snprintf(text, sizeof text, "%s: %.1f requests a run had no complete answer.",
                    arm_name(arms[i]).c_str(), failed / static_cast<double>(results[i].size()));
      notes.emplace_back(text);
    }
  }
  return notes;
}

}  // namespace pointsman::sim
