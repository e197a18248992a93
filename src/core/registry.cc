#include "core/registry.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace pointsman {
namespace {

constexpr std::string_view kWeightSuffix = "_weight";
constexpr double kMaxWeight = 1'000;

std::string weight_option(const StageSpec& scorer) {
  return scorer.type + std::string(kWeightSuffix);
}

// Where a policy names a stage of this kind: costs stand among the scorers.
StageKind place_of(StageKind kind) {
  return kind == StageKind::kCostScorer ? StageKind::kScorer : kind;
}

// "(known: a, b, c; nearest: b)"
std::string known_names(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return "(it has none)";
  std::string text = "(known: ";
  for (const std::string& one : known) {
    if (&one != &known.front()) text += ", ";
    text += one;
  }
  const std::string nearest = nearest_name(name, known);
  if (!nearest.empty()) text += "; nearest: " + nearest;
  return text + ")";
}

Error unknown(std::string_view place, std::string_view what, std::string_view name,
              const std::vector<std::string>& known) {
  std::string text;
  if (!place.empty()) text += std::string(place) + ": ";
  return {ErrorKind::kClient, text + "unknown " + std::string(what) + " '" + std::string(name) +
                                  "' " + known_names(name, known)};
}

Error prefixed(std::string_view place, const Error& error) {
  return {error.kind, std::string(place) + ": " + error.message};
}

std::vector<std::string> names(const std::vector<OptionInfo>& options) {
  std::vector<std::string> list;
  for (const OptionInfo& option : options) list.push_back(option.name);
  return list;
}

bool has_option(const std::vector<OptionInfo>& options, std::string_view name) {
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& option) { return option.name == name; });
}

// All stages of the policy in the order in which they run.
template <typename Spec, typename Visit>
void for_each_stage(Spec& spec, Visit&& visit) {
  for (auto& filter : spec.filters) visit(filter);
  if (!spec.sampler.type.empty()) visit(spec.sampler);
  for (auto& scorer : spec.scorers) visit(scorer);
  if (!spec.picker.type.empty()) visit(spec.picker);
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  // A third of the letters wrong is still the same word; more is another.
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string& other : known) {
    // Levenshtein's distance with neighbours swapped counted as one edit, three rows at a time.
    std::vector<std::size_t> before(other.size() + 1);
    std::vector<std::size_t> above(other.size() + 1);
    std::vector<std::size_t> row(other.size() + 1);
    for (std::size_t j = 0; j <= other.size(); ++j) above[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      row[0] = i;
      for (std::size_t j = 1; j <= other.size(); ++j) {
        const std::size_t change = name[i - 1] == other[j - 1] ? 0 : 1;
        row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + change});
        if (i > 1 && j > 1 && name[i - 1] == other[j - 2] && name[i - 2] == other[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
      std::swap(before, above);
      std::swap(above, row);
    }
    const std::size_t distance = above[other.size()];
    if (distance <= best_distance && (best == nullptr || distance < best_distance)) {
      best = &other;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

void Registry::add_stage(StageInfo info, Factory factory) {
  assert(stage(info.type) == nullptr);
  stages_.push_back(std::move(info));
  factories_.push_back(std::move(factory));
}

const StageInfo* Registry::stage(std::string_view type) const {
  const auto found = std::find_if(stages_.begin(), stages_.end(),
                                  [&](const StageInfo& info) { return info.type == type; });
  return found == stages_.end() ? nullptr : &*found;
}

void Registry::add_preset(std::string_view name, std::string_view summary, Stability stability,
                          PolicySpec stages) {
  PresetInfo info;
  info.name = name;
  info.summary = summary;
  info.stability = stability;
  for_each_stage(std::as_const(stages), [&](const StageSpec& spec) {
    const StageInfo* known = stage(spec.type);
    assert(known != nullptr);
    if (known == nullptr) return;
    for (OptionInfo option : known->options) {
      if (has_option(info.options, option.name)) continue;
      for (const auto& [key, value] : spec.options) {
        if (key == option.name) option.default_value = value;
      }
      info.options.push_back(std::move(option));
    }
    if (known->kind == StageKind::kScorer) {
      info.options.push_back({weight_option(spec), "number", spec.weight, -kMaxWeight, kMaxWeight,
                              "weight of " + spec.type + " in the sum; negative repels"});
    }
  });
  info.spec = std::move(stages);
  presets_.push_back(std::move(info));
}

const PresetInfo* Registry::preset(std::string_view name) const {
  const auto found = std::find_if(presets_.begin(), presets_.end(),
                                  [&](const PresetInfo& info) { return info.name == name; });
  return found == presets_.end() ? nullptr : &*found;
}

// The stages of `spec`, spelled out: a preset's own with the given options laid over them.
Result<PolicySpec> Registry::expand(const PolicySpec& spec) const {
  if (spec.preset.empty()) {
    if (!spec.options.empty()) {
      return Error{ErrorKind::kClient, "option '" + spec.options.front().first +
                                           "' belongs to a preset, or to one of the stages"};
    }
    return spec;
  }
  const PresetInfo* known = preset(spec.preset);
  if (known == nullptr) {
    std::vector<std::string> list;
    for (const PresetInfo& info : presets_) list.push_back(info.name);
    return unknown("", "policy", spec.preset, list);
  }
  if (!spec.filters.empty() || !spec.scorers.empty() || !spec.sampler.type.empty() ||
      !spec.picker.type.empty()) {
    return Error{ErrorKind::kClient,
                 spec.preset + ": a policy is either a preset or stages spelled out, not both"};
  }
  PolicySpec stages = known->spec;
  for (const auto& [key, value] : spec.options) {
    if (!has_option(known->options, key)) {
      return unknown(spec.preset, "option", key, names(known->options));
    }
    for_each_stage(stages, [&, &name = key, &given = value](StageSpec& one) {
      if (has_option(stage(one.type)->options, name)) one.options.emplace_back(name, given);
    });
    for (StageSpec& scorer : stages.scorers) {
      if (weight_option(scorer) != key || stage(scorer.type)->kind != StageKind::kScorer) continue;
      const double* weight = std::get_if<double>(&value);
      if (weight == nullptr) {
        return prefixed(spec.preset, options_detail::wrong_type(key, "number", value));
      }
      if (!(std::abs(*weight) <= kMaxWeight)) {
        return prefixed(spec.preset,
                        options_detail::out_of_range(key, *weight, -kMaxWeight, kMaxWeight));
      }
      scorer.weight = *weight;
    }
  }
  return stages;
}

template <typename T>
Result<std::unique_ptr<T>> Registry::make(std::string_view place, const StageSpec& spec,
                                          StageKind kind) const {
  const auto fits = [&](const StageInfo& info) { return place_of(info.kind) == place_of(kind); };
  const StageInfo* known = stage(spec.type);
  if (known == nullptr || !fits(*known)) {
    std::vector<std::string> list;
    for (const StageInfo& info : stages_) {
      if (fits(info)) list.push_back(info.type);
    }
    return unknown(place, label(place_of(kind)), spec.type, list);
  }
  for (const auto& option : spec.options) {
    if (!has_option(known->options, option.first)) {
      return unknown(place, "option of " + spec.type, option.first, names(known->options));
    }
  }
  Result<std::unique_ptr<Stage>> built =
      factories_[static_cast<std::size_t>(known - stages_.data())](spec.options);
  if (!built) return prefixed(place, built.error());
  // The kind says what the stage is.
  return std::unique_ptr<T>(static_cast<T*>(built->release()));
}

Result<std::unique_ptr<Pipeline>> Registry::build(const PolicySpec& given) const {
  const Result<PolicySpec> expanded = expand(given);
  if (!expanded) return expanded.error();
  const PolicySpec& spec = *expanded;
  // In a preset the user has not written the stages, so errors speak of the preset.
  const auto place = [&](std::string_view own, std::size_t index, bool list) {
    if (!given.preset.empty()) return given.preset;
    return std::string(own) + (list ? "[" + std::to_string(index) + "]" : std::string());
  };

  std::vector<std::unique_ptr<Filter>> filters;
  for (std::size_t i = 0; i < spec.filters.size(); ++i) {
    auto filter = make<Filter>(place("filters", i, true), spec.filters[i], StageKind::kFilter);
    if (!filter) return filter.error();
    filters.push_back(std::move(*filter));
  }

  std::unique_ptr<Sampler> sampler;
  if (!spec.sampler.type.empty()) {
    auto made = make<Sampler>(place("sampler", 0, false), spec.sampler, StageKind::kSampler);
    if (!made) return made.error();
    sampler = std::move(*made);
  }

  std::vector<Pipeline::Weighted> scorers;
  std::unique_ptr<CostScorer> cost;
  for (std::size_t i = 0; i < spec.scorers.size(); ++i) {
    const StageSpec& one = spec.scorers[i];
    const std::string where = place("scorers", i, true);
    const StageInfo* known = stage(one.type);
    if (known != nullptr && known->kind == StageKind::kCostScorer) {
      if (spec.scorers.size() > 1) {
        return Error{ErrorKind::kClient, where + ": '" + one.type +
                                             "' is a cost and must be the only scorer; costs are "
                                             "not summed with scores"};
      }
      auto made = make<CostScorer>(where, one, StageKind::kCostScorer);
      if (!made) return made.error();
      cost = std::move(*made);
      continue;
    }
    auto made = make<Scorer>(where, one, StageKind::kScorer);
    if (!made) return made.error();
    if (!(std::abs(one.weight) <= kMaxWeight)) {
      return prefixed(where,
                      options_detail::out_of_range("weight", one.weight, -kMaxWeight, kMaxWeight));
    }
    scorers.push_back({std::move(*made), static_cast<float>(one.weight)});
  }

  const StageSpec best{"best", 1.0, {}};
  auto picker = make<Picker>(place("picker", 0, false),
                             spec.picker.type.empty() ? best : spec.picker, StageKind::kPicker);
  if (!picker) return picker.error();

  return std::make_unique<Pipeline>(std::move(filters), std::move(sampler), std::move(scorers),
                                    std::move(cost), std::move(*picker));
}

}  // namespace pointsman
