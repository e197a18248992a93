#include "config/policy_reader.h"

#include <algorithm>
#include <map>

#include "config/units.h"

namespace pointsman {
namespace {

// What a plain scalar means as an option: quoted ones are text, whatever they look like.
OptionValue option_value(const YamlNode& node) {
  if (!node.quoted) {
    if (node.text == "true" || node.text == "false") return node.text == "true";
    if (const std::optional<double> number = parse_number(node.text)) return *number;
  }
  return node.text;
}

class PolicyReader {
 public:
  PolicyReader(const Registry& registry, ConfigFaults& faults)
      : registry_(registry), faults_(faults) {}

  PolicySpec read(const YamlNode& node, const std::string& path) {
    PolicySpec spec;
    if (node.kind == YamlNode::Kind::kScalar) {
      spec.preset = node.text;
      if (known_preset(spec.preset, node.line, path)) check(spec, node.line, path);
      return spec;
    }
    if (node.kind != YamlNode::Kind::kMap || node.members.empty()) {
      faults_.add(node.line, path, "is neither a preset's name nor a map with preset or stages");
      return spec;
    }
    const bool good =
        has(node, "preset") ? read_preset(node, path, spec) : read_stages(node, path, spec);
    if (good) check(spec, node.members.front().line, path);
    return spec;
  }

 private:
  static bool has(const YamlNode& node, std::string_view key) {
    return std::any_of(node.members.begin(), node.members.end(),
                       [key](const YamlMember& member) { return member.key == key; });
  }

  // What only the whole shows: a cost beside a score, say.
  void check(const PolicySpec& spec, int line, const std::string& path) {
    const auto built = registry_.build(spec);
    if (!built) faults_.add(line, path, built.error().message);
  }

  bool known_preset(const std::string& name, int line, const std::string& path) {
    if (registry_.preset(name) != nullptr) return true;
    std::vector<std::string> known;
    for (const PresetInfo& info : registry_.presets()) known.push_back(info.name);
    std::string text = "unknown policy '" + name + "' (known: ";
    for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
    const std::string nearest = nearest_name(name, known);
    if (!nearest.empty()) text += "; nearest: " + nearest;
    faults_.add(line, path, text + ")");
    return false;
  }

  bool read_preset(const YamlNode& node, const std::string& path, PolicySpec& spec) {
    for (const YamlMember& member : node.members) {
      if (member.key != "preset") continue;
      if (member.value.kind != YamlNode::Kind::kScalar) {
        faults_.add(member.line, path + ".preset", "is not a policy's name");
        return false;
      }
      spec.preset = member.value.text;
      if (!known_preset(spec.preset, member.line, path + ".preset")) return false;
    }
    std::vector<std::string> known;
    for (const OptionInfo& option : registry_.preset(spec.preset)->options) {
      known.push_back(option.name);
    }
    bool good = true;
    for (const YamlMember& member : node.members) {
      if (member.key == "preset") continue;
      const std::string place = path + "." + member.key;
      if (std::find(known.begin(), known.end(), member.key) == known.end()) {
        faults_.add(member.line, place, unknown_key_text(member.key, known));
        good = false;
        continue;
      }
      good = read_option(member, place, spec.options) && good;
      if (!good) continue;
      // Each option is tried alone, so that a fault is told with its own line.
      PolicySpec alone;
      alone.preset = spec.preset;
      alone.options.push_back(spec.options.back());
      const auto built = registry_.build(alone);
      if (!built) {
        faults_.add(member.line, place, built.error().message);
        good = false;
      }
    }
    return good;
  }

  bool read_option(const YamlMember& member, const std::string& place, OptionMap& options) {
    if (member.value.kind != YamlNode::Kind::kScalar) {
      faults_.add(member.line, place, "is not a number, true, false or a word");
      return false;
    }
    // The number that means "no bound on how many are compared" may be written as the word.
    const bool all = member.key == "choices" && member.value.text == "all";
    options.emplace_back(member.key, all ? OptionValue{0.0} : option_value(member.value));
    return true;
  }

  bool read_stages(const YamlNode& node, const std::string& path, PolicySpec& spec) {
    bool good = true;
    for (const YamlMember& member : node.members) {
      const std::string place = path + "." + member.key;
      if (member.key == "filters") {
        good = read_list(member, place, spec.filters) && good;
      } else if (member.key == "scorers") {
        good = read_list(member, place, spec.scorers) && good;
      } else if (member.key == "sampler") {
        good = read_stage(member.value, member.line, place, spec.sampler) && good;
      } else if (member.key == "picker") {
        good = read_stage(member.value, member.line, place, spec.picker) && good;
      } else {
        faults_.add(
            member.line, place,
            unknown_key_text(member.key, {"preset", "filters", "sampler", "scorers", "picker"}));
        good = false;
      }
    }
    return good;
  }

  bool read_list(const YamlMember& member, const std::string& path, std::vector<StageSpec>& list) {
    if (member.value.kind != YamlNode::Kind::kSequence) {
      faults_.add(member.line, path, "is not a list of stages");
      return false;
    }
    bool good = true;
    for (std::size_t i = 0; i < member.value.items.size(); ++i) {
      const YamlNode& item = member.value.items[i];
      StageSpec stage;
      good = read_stage(item, item.line, path + "[" + std::to_string(i) + "]", stage) && good;
      list.push_back(std::move(stage));
    }
    return good;
  }

  bool read_stage(const YamlNode& node, int line, const std::string& path, StageSpec& stage) {
    if (node.kind == YamlNode::Kind::kScalar) {
      stage.type = node.text;
      return true;
    }
    if (node.kind != YamlNode::Kind::kMap || !has(node, "type")) {
      faults_.add(line, path, "is neither a stage's name nor a map with a type");
      return false;
    }
    bool good = true;
    for (const YamlMember& member : node.members) {
      const std::string place = path + "." + member.key;
      if (member.value.kind != YamlNode::Kind::kScalar) {
        faults_.add(member.line, place, "is not a number, true, false or a word");
        good = false;
      } else if (member.key == "type") {
        stage.type = member.value.text;
      } else if (member.key == "weight") {
        const std::optional<double> weight = parse_number(member.value.text);
        if (!weight) {
          faults_.add(member.line, place, "'" + member.value.text + "' is not a number");
          good = false;
        } else {
          stage.weight = *weight;
        }
      } else {
        good = read_option(member, place, stage.options) && good;
      }
    }
    return good;
  }

  const Registry& registry_;
  ConfigFaults& faults_;
};

}  // namespace

Error ConfigFaults::error() const {
  // Faults of one line stay in the order in which they were found.
  const std::multimap<int, std::string> by_line(faults_.begin(), faults_.end());
  std::string text;
  for (const auto& [line, what] : by_line) {
    if (!text.empty()) text += '\n';
    text += (file_.empty() ? file_ : place(line) + ": ") + what;
  }
  return {ErrorKind::kClient, text};
}

std::string unknown_key_text(const std::string& key, const std::vector<std::string>& known) {
  std::string text = "unknown key (known: ";
  for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
  const std::string nearest = nearest_name(key, known);
  if (!nearest.empty()) text += "; nearest: " + nearest;
  return text + ")";
}

PolicySpec read_policy(const YamlNode& node, const std::string& path, const Registry& registry,
                       ConfigFaults& faults) {
  return PolicyReader(registry, faults).read(node, path);
}

}  // namespace pointsman
