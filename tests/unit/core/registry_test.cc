#include "core/registry.h"

#include <cmath>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

struct KeepAll final : Filter {
  static constexpr std::string_view kType = "keep_all";
  static constexpr std::string_view kSummary = "keeps all";
  using Options = NoOptions;
  explicit KeepAll(const Options&) {}
  void apply(Context&, Candidates&) override {}
};

struct Few final : Sampler {
  static constexpr std::string_view kType = "few";
  static constexpr std::string_view kSummary = "keeps the first few";
  struct Options {
    std::uint32_t choices = 0;
    static constexpr auto fields() {
      return std::tuple{Field{"choices", &Options::choices, 0, 16, "how many"}};
    }
  };
  explicit Few(const Options&) {}
  void sample(Context&, Candidates&) override {}
};

struct Constant final : Scorer {
  static constexpr std::string_view kType = "constant";
  static constexpr std::string_view kSummary = "the same for all";
  struct Options {
    double value = 0.5;
    static constexpr auto fields() {
      return std::tuple{Field{"value", &Options::value, 0.0, 1.0, "the score"}};
    }
  };
  explicit Constant(const Options&) {}
  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = false}; }
  void score(const Context&, std::span<const ReplicaIndex>, std::span<float>) override {}
};

struct Free final : CostScorer {
  static constexpr std::string_view kType = "free";
  static constexpr std::string_view kSummary = "costs nothing";
  struct Options {
    bool live = true;
    static constexpr auto fields() { return std::tuple{Field{"live", &Options::live, "live"}}; }
  };
  explicit Free(const Options&) {}
  void cost(const Context&, std::span<const ReplicaIndex>, std::span<CostKeys>) override {}
};

struct First final : Picker {
  static constexpr std::string_view kType = "best";
  static constexpr std::string_view kSummary = "the first";
  using Options = NoOptions;
  explicit First(const Options&) {}
  std::size_t pick(Context&, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    order[0] = candidates[0];
    return 1;
  }
};

Registry small_registry() {
  Registry registry;
  registry.add<KeepAll>();
  registry.add<Few>();
  registry.add<Constant>();
  registry.add<Free>();
  registry.add<First>();
  registry.add_preset(
      "least_kv", "least", Stability::kStable,
      {.sampler = {.type = "few", .options = {{"choices", 2.0}}}, .scorers = {{.type = "free"}}});
  registry.add_preset("weighted", "sum", Stability::kExperimental,
                      {.scorers = {{.type = "constant", .weight = 2.0}}});
  return registry;
}

std::string error_of(const PolicySpec& spec) {
  const auto result = small_registry().build(spec);
  return result ? "" : result.error().message;
}

TEST(Registry, BuildsPresetsAndStagesSpelledOut) {
  EXPECT_EQ(error_of({.preset = "least_kv"}), "");
  EXPECT_EQ(error_of({.preset = "least_kv", .options = {{"choices", 3.0}, {"live", false}}}), "");
  EXPECT_EQ(error_of({.filters = {{.type = "keep_all"}},
                      .sampler = {.type = "few"},
                      .scorers = {{.type = "constant", .weight = -0.5}},
                      .picker = {.type = "best"}}),
            "");
  EXPECT_EQ(error_of({}), "") << "no stage at all: the default picker over all candidates";
}

TEST(Registry, NeedsAreThoseOfTheStages) {
  const Registry registry = small_registry();
  EXPECT_TRUE((*registry.build({.preset = "weighted"}))->needs().blocks);
  EXPECT_FALSE((*registry.build({.preset = "least_kv"}))->needs().blocks);
}

TEST(Registry, ErrorsNameWhatIsWrongWhatIsKnownAndTheNearestName) {
  EXPECT_EQ(error_of({.preset = "leest_kv"}),
            "unknown policy 'leest_kv' (known: least_kv, weighted; nearest: least_kv)");
  EXPECT_EQ(error_of({.preset = "least_kv", .options = {{"chioces", 2.0}}}),
            "least_kv: unknown option 'chioces' (known: choices, live; nearest: choices)");
  EXPECT_EQ(error_of({.scorers = {{.type = "constant"}, {.type = "konstant"}}}),
            "scorers[1]: unknown scorer 'konstant' (known: constant, free; nearest: constant)");
  EXPECT_EQ(error_of({.scorers = {{.type = "constant", .options = {{"valeu", 1.0}}}}}),
            "scorers[0]: unknown option of constant 'valeu' (known: value; nearest: value)");
  EXPECT_EQ(error_of({.filters = {{.type = "keep_all", .options = {{"x", 1.0}}}}}),
            "filters[0]: unknown option of keep_all 'x' (it has none)");
  EXPECT_EQ(error_of({.preset = "least_kv", .options = {{"choices", 99.0}}}),
            "least_kv: option 'choices' is 99, allowed are 0 to 16");
  EXPECT_EQ(error_of({.picker = {.type = "few"}}), "picker: unknown picker 'few' (known: best)");
}

TEST(Registry, ACostStandsAlone) {
  EXPECT_NE(error_of({.scorers = {{.type = "constant"}, {.type = "free"}}}), "");
  EXPECT_NE(error_of({.scorers = {{.type = "free"}, {.type = "free"}}}), "");
  EXPECT_EQ(error_of({.scorers = {{.type = "free"}}}), "");
}

TEST(Registry, APresetAndStagesAreNotMixed) {
  EXPECT_NE(error_of({.preset = "least_kv", .sampler = {.type = "few"}}), "");
  EXPECT_NE(error_of({.options = {{"choices", 2.0}}}), "");
}

TEST(Registry, WeightsMustBeFinite) {
  EXPECT_NE(error_of({.scorers = {{.type = "constant", .weight = std::nan("")}}}), "");
  EXPECT_NE(error_of({.scorers = {{.type = "constant", .weight = INFINITY}}}), "");
  EXPECT_NE(error_of({.preset = "weighted", .options = {{"constant_weight", std::nan("")}}}), "");
  EXPECT_EQ(error_of({.preset = "weighted", .options = {{"constant_weight", -3.0}}}), "");
}

TEST(Registry, APresetsOptionsCarryThePresetsDefaults) {
  const Registry registry = small_registry();
  const PresetInfo* least_kv = registry.preset("least_kv");
  ASSERT_NE(least_kv, nullptr);
  ASSERT_EQ(least_kv->options.size(), 2U);
  EXPECT_EQ(least_kv->options[0].name, "choices");
  EXPECT_EQ(std::get<double>(least_kv->options[0].default_value), 2.0) << "the stage's own is 0";
  EXPECT_EQ(least_kv->options[1].name, "live");
  const PresetInfo* weighted = registry.preset("weighted");
  ASSERT_NE(weighted, nullptr);
  ASSERT_EQ(weighted->options.size(), 2U);
  EXPECT_EQ(weighted->options[1].name, "constant_weight");
  EXPECT_EQ(std::get<double>(weighted->options[1].default_value), 2.0);
  EXPECT_EQ(registry.preset("none"), nullptr);
}

TEST(NearestName, FindsSlipsAndNotOtherWords) {
  const std::vector<std::string> known = {"least_kv", "least_work", "round_robin"};
  EXPECT_EQ(nearest_name("least_wrok", known), "least_work");
  EXPECT_EQ(nearest_name("roundrobin", known), "round_robin");
  EXPECT_EQ(nearest_name("zzz", known), "");
  EXPECT_EQ(nearest_name("", known), "");
}

}  // namespace
}  // namespace pointsman
