#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "core/options.h"
#include "core/pipeline.h"
#include "core/stage.h"

namespace pointsman {

enum class StageKind : std::uint8_t { kFilter, kSampler, kScorer, kCostScorer, kPicker };

// The kind in one word, for messages and listings.
constexpr std::string_view label(StageKind kind) {
  switch (kind) {
    case StageKind::kFilter:
      return "filter";
    case StageKind::kSampler:
      return "sampler";
    case StageKind::kScorer:
      return "scorer";
    case StageKind::kCostScorer:
      return "cost";
    case StageKind::kPicker:
      return "picker";
  }
  return "stage";
}

enum class Stability : std::uint8_t { kStable, kExperimental };

// A stage of a policy as the configuration names it.
struct StageSpec {
  std::string type{};
  double weight = 1.0;  // of a normalised scorer; must be finite; negative repels
  OptionMap options{};
};

// A policy: either a preset with options, or stages spelled out.
struct PolicySpec {
  std::string preset{};  // empty: the stages below
  // Of the preset. Each goes to every stage that has an option of that name; "<scorer>_weight" sets
  // the weight of a normalised scorer.
  OptionMap options{};
  std::vector<StageSpec> filters{};
  StageSpec sampler{};  // empty type: all candidates
  std::vector<StageSpec> scorers{};
  StageSpec picker{};  // empty type: "best"
};

struct StageInfo {
  StageKind kind = StageKind::kFilter;
  std::string type;
  std::string summary;
  std::vector<OptionInfo> options;
};

struct PresetInfo {
  std::string name;
  std::string summary;
  Stability stability = Stability::kStable;
  PolicySpec spec;                  // with the stages spelled out
  std::vector<OptionInfo> options;  // of its stages, each once, with the preset's defaults
};

// All stages and presets by name. Filled by an explicit list (policies/register.h): static objects
// that register themselves are dropped by the linker from a static library.
class Registry {
 public:
  // T is a Filter, Sampler, Scorer, CostScorer or Picker with
  //   static constexpr std::string_view kType, kSummary;
  //   struct Options { …; static constexpr auto fields(); };
  //   explicit T(const Options&);
  template <typename T>
  void add();

  // The stages must have been added before.
  void add_preset(std::string_view name, std::string_view summary, Stability stability,
                  PolicySpec stages);

  [[nodiscard]] const std::vector<StageInfo>& stages() const { return stages_; }
  [[nodiscard]] const std::vector<PresetInfo>& presets() const { return presets_; }
  [[nodiscard]] const PresetInfo* preset(std::string_view name) const;

  // Builds the pipeline. Of the scorers, either all are normalised or there is one cost scorer
  // alone. Errors name the preset or stage, the option, what is allowed and the nearest known name:
  // "least_kv: unknown option 'chioces' (known: choices, live, …; nearest: choices)".
  [[nodiscard]] Result<std::unique_ptr<Pipeline>> build(const PolicySpec& spec) const;

 private:
  using Factory = std::function<Result<std::unique_ptr<Stage>>(const OptionMap&)>;

  void add_stage(StageInfo info, Factory factory);
  [[nodiscard]] const StageInfo* stage(std::string_view type) const;
  [[nodiscard]] Result<PolicySpec> expand(const PolicySpec& spec) const;
  // `place` names the stage in errors: "picker", "scorers[1]".
  template <typename T>
  [[nodiscard]] Result<std::unique_ptr<T>> make(std::string_view place, const StageSpec& spec,
                                                StageKind kind) const;

  std::vector<StageInfo> stages_;
  std::vector<Factory> factories_;  // parallel to stages_
  std::vector<PresetInfo> presets_;
};

// The known name with the smallest edit distance, or "" where none is near.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string>& known);

template <typename T>
void Registry::add() {
  StageInfo info;
  if constexpr (std::is_base_of_v<Filter, T>) {
    info.kind = StageKind::kFilter;
  } else if constexpr (std::is_base_of_v<Sampler, T>) {
    info.kind = StageKind::kSampler;
  } else if constexpr (std::is_base_of_v<Scorer, T>) {
    info.kind = StageKind::kScorer;
  } else if constexpr (std::is_base_of_v<CostScorer, T>) {
    info.kind = StageKind::kCostScorer;
  } else {
    static_assert(std::is_base_of_v<Picker, T>);
    info.kind = StageKind::kPicker;
  }
  info.type = T::kType;
  info.summary = T::kSummary;
  info.options = describe_options<typename T::Options>();
  add_stage(std::move(info), [](const OptionMap& map) -> Result<std::unique_ptr<Stage>> {
    Result<typename T::Options> options = parse_options<typename T::Options>(map);
    if (!options) return options.error();
    return std::unique_ptr<Stage>(std::make_unique<T>(*options));
  });
}

}  // namespace pointsman
