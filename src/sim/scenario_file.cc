#include "sim/scenario_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "config/policy_reader.h"
#include "config/section_keys.h"
#include "config/yaml_tree.h"
#include "sim/idle_keys.h"
#include "sim/scenario_keys.h"
#include "sim/step_cost.h"

namespace pointsman::sim {
namespace {

constexpr std::uint32_t kQuickRun = 2'000;  // requests

class ScenarioReader {
 public:
  ScenarioReader(std::string_view file, const Registry& registry,
                 const ScenarioOverrides& overrides)
      : file_(file), faults_(file), registry_(registry), overrides_(overrides) {}

  Result<LoadedScenario> read(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap) {
      return Error{ErrorKind::kClient,
                   faults_.place(std::max(1, root.line)) + ": is not a map of keys to values"};
    }
    read_preset(root);
    for (const YamlMember& member : root.members) {
      if (member.key == "preset") continue;
      if (member.key == "replicas") {
        read_replicas(member);
      } else if (member.key == "faults") {
        read_faults(member);
      } else if (member.key == "arms") {
        read_arms(member);
      } else {
        read_key(scenario_keys(), member, "", "", scenario(),
                 {"preset", "replicas", "faults", "arms"});
      }
    }
    const bool all_read = faults_.empty();
    find_trace();
    const Scenario in_file = scenario();
    apply_overrides(scenario(), overrides_);
    replicas_of_file_ = in_file.replicas.size();
    const bool faults_fit = check_fault_replicas();
    if (all_read) {
      find_idle_keys(root, in_file, scenario(), loaded_.arms, faults_);
      check(root);
      // These look at the replicas that faults name.
      if (faults_fit) {
        check_steps(root);
        check_faults();
      }
    }
    if (!faults_.empty()) return faults_.error();
    return std::move(loaded_);
  }

 private:
  Scenario& scenario() { return loaded_.scenario; }

  // Keys that the preset does not decide come after it, wherever it stands.
  void read_preset(const YamlNode& root) {
    for (const YamlMember& member : root.members) {
      if (member.key != "preset") continue;
      if (member.value.kind != YamlNode::Kind::kScalar) {
        faults_.add(member.line, "preset", "is not the name of one scenario");
        continue;
      }
      std::optional<Scenario> preset = find_scenario_preset(member.value.text);
      if (preset) {
        scenario() = std::move(*preset);
        return;
      }
      std::vector<std::string> known;
      for (const ScenarioPreset& one : scenario_presets()) known.emplace_back(one.name);
      unknown_word(member.line, "preset", "scenario", member.value.text, known);
    }
    scenario().replicas.resize(8);
    for (ReplicaSpec& replica : scenario().replicas) {
      replica.engine = find_engine_preset("8b_a100")->config;
    }
  }

  void unknown_word(int line, const std::string& place, const std::string& what,
                    const std::string& word, const std::vector<std::string>& known) {
    std::string text = "unknown " + what + " '" + word + "' (known: ";
    for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
    const std::string nearest = nearest_name(word, known);
    if (!nearest.empty()) text += "; nearest: " + nearest;
    faults_.add(line, place, text + ")");
  }

  // Finds the member's key in the table, or goes into the map that it begins. `prefix` is what
  // stands before the key in the table, `place` what stands before it in errors, `further` are keys
  // that somebody else reads.
  template <typename Owner>
  void read_key(const std::vector<Key<Owner>>& keys, const YamlMember& member,
                const std::string& prefix, const std::string& place, Owner& owner,
                const std::vector<std::string>& further = {}) {
    const std::string path = prefix + member.key;
    bool is_section = false;
    for (const Key<Owner>& key : keys) {
      if (key.path == path) {
        const Result<void> outcome = key.read(owner, member.value);
        if (!outcome) faults_.add(member.line, place + member.key, outcome.error().message);
        return;
      }
      is_section = is_section || key.path.starts_with(path + ".");
    }
    if (!is_section) {
      faults_.add(member.line, place + member.key,
                  unknown_key_text(member.key, names_after(keys, prefix, further)));
      return;
    }
    if (member.value.kind == YamlNode::Kind::kNull) return;  // its keys are all comments
    if (member.value.kind != YamlNode::Kind::kMap) {
      faults_.add(member.line, place + member.key, "is not a map of keys to values");
      return;
    }
    for (const YamlMember& inner : member.value.members) {
      read_key(keys, inner, path + ".", place + member.key + ".", owner);
    }
  }

  // The keys and sections right behind the prefix.
  template <typename Owner>
  static std::vector<std::string> names_after(const std::vector<Key<Owner>>& keys,
                                              const std::string& prefix,
                                              std::vector<std::string> names) {
    for (const Key<Owner>& key : keys) {
      if (!key.path.starts_with(prefix)) continue;
      const std::string rest = key.path.substr(prefix.size());
      const std::string name = rest.substr(0, rest.find('.'));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  // Calls read(entry, its place) for each map of a list.
  template <typename Read>
  void for_each_map(const YamlMember& list, Read&& read) {
    if (list.value.kind == YamlNode::Kind::kNull) return;
    if (list.value.kind != YamlNode::Kind::kSequence) {
      faults_.add(list.line, list.key, "is not a list");
      return;
    }
    for (std::size_t i = 0; i < list.value.items.size(); ++i) {
      const YamlNode& item = list.value.items[i];
      const std::string place = list.key + "[" + std::to_string(i) + "]";
      if (item.kind != YamlNode::Kind::kMap) {
        faults_.add(item.line, place, "is not a map of keys to values");
      } else {
        read(item, place + ".");
      }
    }
  }

  void read_replicas(const YamlMember& list) {
    scenario().replicas.clear();
    for_each_map(list, [&](const YamlNode& item, const std::string& place) {
      ReplicaGroup group;
      group.replica.engine = find_engine_preset("8b_a100")->config;
      for (const YamlMember& member : item.members) {
        if (member.key == "engine") read_engine(member, place, group.replica.engine);
      }
      for (const YamlMember& member : item.members) {
        if (member.key == "engine" && member.value.kind == YamlNode::Kind::kScalar) continue;
        if (member.key == "engine" && member.value.kind == YamlNode::Kind::kMap) {
          for (const YamlMember& inner : member.value.members) {
            if (inner.key == "preset") continue;
            read_key(replica_group_keys(), inner, "engine.", place + "engine.", group, {"preset"});
          }
          continue;
        }
        read_key(replica_group_keys(), member, "", place, group);
      }
      if (scenario().replicas.size() + group.count > kMaxReplicas) {
        faults_.add(item.line, place + "count",
                    "makes more than " + std::to_string(kMaxReplicas) + " replicas in all");
        return;
      }
      scenario().replicas.insert(scenario().replicas.end(), group.count, group.replica);
    });
    if (scenario().replicas.empty() && faults_.empty()) {
      faults_.add(list.line, "replicas", "lists none; leave the key out for the default");
    }
  }

  // The engine to start from.
  void read_engine(const YamlMember& member, const std::string& place, EngineConfig& engine) {
    const YamlNode* name = member.value.kind == YamlNode::Kind::kScalar ? &member.value : nullptr;
    for (const YamlMember& inner : member.value.members) {
      if (inner.key == "preset") name = &inner.value;
    }
    if (name == nullptr) return;
    if (const EnginePreset* preset = find_engine_preset(name->text)) {
      engine = preset->config;
      return;
    }
    std::vector<std::string> known;
    for (const EnginePreset& one : engine_presets()) known.emplace_back(one.name);
    unknown_word(name->line, place + "engine", "engine", name->text, known);
  }

  void read_faults(const YamlMember& list) {
    for_each_map(list, [&](const YamlNode& item, const std::string& place) {
      FaultSpec fault;
      FaultLines lines{.item = item.line, .replica = item.line};
      bool has_factor = false;
      for (const YamlMember& member : item.members) {
        read_key(fault_keys(), member, "", place, fault);
        has_factor = has_factor || member.key == "factor";
        if (member.key == "replica") lines.replica = member.line;
      }
      if (has_factor != (fault.kind == FaultKind::kSlows)) {
        faults_.add(item.line, place + "factor",
                    has_factor ? "is of the kind slows alone" : "is missing: how much slower?");
      }
      scenario().faults.push_back(fault);
      fault_lines_.push_back(lines);
    });
  }

  void read_arms(const YamlMember& list) {
    for_each_map(list, [&](const YamlNode& item, const std::string& place) {
      Arm arm;
      bool has_policy = false;
      for (const YamlMember& member : item.members) {
        if (member.key == "policy") {
          has_policy = true;
          arm.policy = read_policy(member.value, place + "policy", registry_, faults_);
        } else {
          read_key(arm_keys(), member, "", place, arm, {"policy"});
        }
      }
      if (!has_policy) faults_.add(item.line, place + "policy", "is missing");
      loaded_.arms.push_back(std::move(arm));
    });
  }

  // What must hold between values.
  void check(const YamlNode& root) {
    Scenario& s = scenario();
    if (s.arrivals.kind == ArrivalKind::kClosed && s.arrivals.users == 0) {
      faults_.add(line_of(root, "arrivals", "users"), "arrivals.users",
                  "a closed loop needs at least one" + with_flags(overrides_.replicas, false));
    }
    if (s.arrivals.kind == ArrivalKind::kTrace && s.arrivals.trace.empty()) {
      faults_.add(root.line, "arrivals.trace", "names no file");
    }
    if (s.workload.document_low > s.workload.document_high) {
      faults_.add(root.line, "workload.document_low", "is above document_high");
    }
    if ((s.arrivals.kind == ArrivalKind::kSemiOpen || s.arrivals.kind == ArrivalKind::kOpen) &&
        s.measure.length <= Duration{} &&
        s.measure.requests / s.arrivals.rate > kLongestRunSeconds) {
      faults_.add(line_of(root, "measure", "requests"), "measure.requests",
                  "at arrivals.rate " + to_text(s.arrivals.rate) + " they take " +
                      to_text(s.measure.requests / s.arrivals.rate) + " s, and a run may last " +
                      to_text(kLongestRunSeconds) + " s" + with_flags(overrides_.replicas, true));
    }
    if (s.workload.turns_law == TurnsLaw::kGeometric && s.workload.turns_mean < 1) {
      faults_.add(line_of(root, "workload", "turns_mean"), "workload.turns_mean",
                  "is " + to_text(s.workload.turns_mean) +
                      ", and the geometric law needs a mean of at least 1");
    }
    check_law(root, "first_prompt", s.workload.first_prompt);
    check_law(root, "follow_up", s.workload.follow_up);
    check_law(root, "output", s.workload.output);
    check_law(root, "long_generation", s.workload.long_generation);
    check_law(root, "system_prompt", s.workload.system_prompt);
    std::set<PoolPurpose> pools;
    for (const ReplicaSpec& replica : s.replicas) pools.insert(replica.pool);
    const bool segregated =
        s.segregated || std::any_of(loaded_.arms.begin(), loaded_.arms.end(),
                                    [](const Arm& arm) { return arm.segregated.value_or(false); });
    if (segregated && !pools.contains(PoolPurpose::kGeneral)) {
      faults_.add(root.line, "replicas", "no replica is in the general pool");
    }
    if (segregated && overrides_.replicas && pools.size() < 2 &&
        replicas_of_file_ > s.replicas.size()) {
      faults_.add(line_of(root, "segregated"), "segregated",
                  "changes nothing: --replicas leaves " + std::to_string(s.replicas.size()) +
                      ", in one pool");
    }
  }

  // Its path is from the file's folder.
  void find_trace() {
    std::string& trace = scenario().arrivals.trace;
    const std::size_t slash = file_.rfind('/');
    if (trace.empty() || trace.front() == '/' || slash == std::string::npos) return;
    trace = file_.substr(0, slash + 1) + trace;
  }

  // What of the command line made the scenario other than the file's.
  std::string with_flags(std::optional<std::uint32_t> replicas, bool length) const {
    std::string text;
    const auto add = [&text](const std::string& flag) {
      text += (text.empty() ? ", with " : " and ") + flag;
    };
    if (replicas) add("--replicas " + std::to_string(*replicas));
    if (length && overrides_.requests) {
      add("--requests " + std::to_string(*overrides_.requests));
    } else if (length && overrides_.quick) {
      add("--quick");
    }
    return text;
  }

  bool check_fault_replicas() {
    const std::vector<FaultSpec>& faults = scenario().faults;
    const std::size_t count = scenario().replicas.size();
    bool good = true;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const std::uint32_t replica = faults[i].replica;
      if (replica < count) continue;
      good = false;
      const std::string text =
          overrides_.replicas && replica < replicas_of_file_
              ? std::to_string(replica) + ", but --replicas leaves " + std::to_string(count) +
                    ", numbered from 0"
          : count == 1 ? std::string("there is 1 replica, number 0")
                       : "there are " + std::to_string(count) + " replicas, numbered from 0";
      faults_.add(fault_lines_[i].replica, "faults[" + std::to_string(i) + "].replica", text);
    }
    return good;
  }

  // Each fault must find what it changes: who dies must live.
  void check_faults() {
    const std::vector<FaultSpec>& faults = scenario().faults;
    std::vector<std::size_t> order(faults.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(faults[i].at, i); });
    std::vector<bool> alive(scenario().replicas.size(), true);
    std::vector<bool> joined(scenario().replicas.size(), true);
    std::vector<bool> reports(scenario().replicas.size(), true);
    for (const FaultSpec& fault : faults) {
      if (fault.kind == FaultKind::kJoins) joined[fault.replica] = false;
    }
    const std::optional<double> length = seconds_of_arrivals();
    for (const std::size_t i : order) {
      const FaultSpec& fault = faults[i];
      const std::uint32_t r = fault.replica;
      std::string problem;
      if (length && to_seconds(fault.at) > *length) {
        problem = "comes after the last request" + end_of_arrivals(*length);
      } else if (!joined[r] && fault.kind != FaultKind::kJoins) {
        problem = "comes before the replica joins";
      } else {
        switch (fault.kind) {
          case FaultKind::kDies:
            if (!alive[r]) problem = "the replica is dead then";
            alive[r] = false;
            break;
          case FaultKind::kRestarts:
            if (alive[r]) problem = "the replica has not died";
            alive[r] = true;
            break;
          case FaultKind::kJoins:
            if (joined[r]) problem = "the replica is there then";
            joined[r] = true;
            break;
          case FaultKind::kSlows:
            break;
          case FaultKind::kStopsReporting:
            if (!reports[r]) problem = "the replica does not report then";
            reports[r] = false;
            break;
          case FaultKind::kReports:
            if (reports[r]) problem = "the replica has not stopped";
            reports[r] = true;
            break;
        }
      }
      if (problem.empty()) continue;
      faults_.add(fault_lines_[i].item, "faults[" + std::to_string(i) + "]",
                  "changes nothing: " + problem);
    }
  }

  std::string end_of_arrivals(double seconds) const {
    const std::string flags = with_flags(std::nullopt, true);
    if (flags.empty()) return "";
    char text[64];
    std::snprintf(text, sizeof text, ", at %.6g s", seconds);
    return text + flags.substr(1);
  }

  // For how long requests arrive, where the file alone tells.
  std::optional<double> seconds_of_arrivals() {
    const Scenario& s = scenario();
    if (s.arrivals.kind == ArrivalKind::kTrace) return std::nullopt;
    if (s.measure.length > Duration{}) return to_seconds(s.measure.length);
    if (s.arrivals.kind == ArrivalKind::kClosed) return std::nullopt;
    return s.measure.requests / s.arrivals.rate;
  }

  void check_law(const YamlNode& root, const char* name, const LengthLaw& law) {
    if (law.low <= law.high) return;
    faults_.add(line_of(root, "workload", name), std::string("workload.") + name + ".low",
                "is " + std::to_string(law.low) + ", above high, " + std::to_string(law.high));
  }

  // Each engine's longest step, as slow as faults make it.
  void check_steps(const YamlNode& root) {
    std::vector<double> factors(scenario().replicas.size(), 1);
    for (const FaultSpec& fault : scenario().faults) {
      if (fault.kind != FaultKind::kSlows) continue;
      factors[fault.replica] = std::max(factors[fault.replica], fault.factor);
    }
    for (std::size_t i = 0; i < scenario().replicas.size(); ++i) {
      const ReplicaSpec& replica = scenario().replicas[i];
      const double seconds = longest_step_seconds(replica.engine) * replica.slowness * factors[i];
      if (seconds <= kLongestStepSeconds) continue;
      faults_.add(line_of(root, "replicas"), "replicas",
                  "a step of replica " + std::to_string(i) + " may take " + to_text(seconds) +
                      " s with its batch and its cache full, and " + to_text(kLongestStepSeconds) +
                      " s is the most");
      return;
    }
  }

  // Of the key, or of the file where it has the default.
  static int line_of(const YamlNode& root, std::string_view key, std::string_view inner = {}) {
    for (const YamlMember& member : root.members) {
      if (member.key != key) continue;
      return inner.empty() || member.value.members.empty() ? member.line
                                                           : line_of(member.value, inner);
    }
    return std::max(1, root.line);
  }

  std::string file_;
  ConfigFaults faults_;
  const Registry& registry_;
  LoadedScenario loaded_;
  const ScenarioOverrides& overrides_;
  struct FaultLines {
    int item;
    int replica;
  };
  std::vector<FaultLines> fault_lines_;
  std::size_t replicas_of_file_ = 0;
};

}  // namespace

void apply_overrides(Scenario& scenario, const ScenarioOverrides& overrides) {
  if (overrides.quick) scenario.measure.requests = kQuickRun;
  if (overrides.replicas) set_replicas(scenario, *overrides.replicas);
  if (overrides.sharing) set_sharing(scenario, *overrides.sharing);
  if (overrides.requests) scenario.measure.requests = *overrides.requests;
  if (overrides.quick || overrides.requests) scenario.measure.length = Duration{};
  ArrivalsSpec& arrivals = scenario.arrivals;
  if (!overrides.trace.empty()) {
    arrivals.kind = ArrivalKind::kTrace;
    arrivals.trace = overrides.trace;
  }
  if (arrivals.kind == ArrivalKind::kTrace && overrides.requests) {
    arrivals.trace_requests = *overrides.requests;
  }
}

Result<LoadedScenario> load_scenario(std::string_view text, std::string_view file,
                                     const Registry& registry, const ScenarioOverrides& overrides) {
  const Result<YamlNode> root = parse_yaml(text, file);
  if (!root) return root.error();
  return ScenarioReader(file, registry, overrides).read(*root);
}

Result<LoadedScenario> load_scenario_file(const std::string& path, const Registry& registry,
                                          const ScenarioOverrides& overrides) {
  const auto cannot = [&path](int error) {
    return Error{ErrorKind::kClient,
                 path + ": cannot be read: " + std::generic_category().message(error)};
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) return cannot(errno);
  std::string text;
  char part[16 * 1024];
  while (const std::size_t read = std::fread(part, 1, sizeof(part), file.get())) {
    text.append(part, read);
  }
  if (std::ferror(file.get()) != 0) return cannot(errno);
  return load_scenario(text, path, registry, overrides);
}

}  // namespace pointsman::sim
