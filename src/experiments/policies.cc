#include "experiments/policies.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/settings.h"
#include "experiments/statistics.h"

namespace pointsman::sim {
namespace {

constexpr int kSettings = 100;
constexpr int kQuickSettings = 12;
// Runs of each setting: its figure is their mean.
constexpr std::uint64_t kRuns = 3;
constexpr std::uint32_t kRequests = 8'000;
constexpr std::uint32_t kQuickRequests = 2'000;

bool is_reference(const Arm& arm) {
  return arm.policy.preset == "session_affinity" && arm.label == "segregation";
}

// A part of the settings: those whose drawn value lies in [low, high).
struct Slice {
  std::string_view key;    // of the row: "p99_gain_<key>"
  std::string_view title;  // of the column
  std::string_view drawn;
  double low;
  double high;
};

constexpr std::array kSlices{Slice{"load_35_45", "load .35-.45", "load", 0.35, 0.45},
                             Slice{"load_45_55", ".45-.55", "load", 0.45, 0.55},
                             Slice{"load_55_65", ".55-.65", "load", 0.55, 0.65},
                             Slice{"load_65_75", ".65-.75", "load", 0.65, 0.75},
                             Slice{"balancers_1", "1 balancer", "balancers", 1, 2},
                             Slice{"balancers_2", "2", "balancers", 2, 3},
                             Slice{"balancers_4", "4", "balancers", 4, 5},
                             Slice{"balancers_8", "8", "balancers", 8, 9}};

Record policy_row(std::span<const SettingResult> settings, std::span<const Arm> arms,
                  std::size_t own, std::size_t reference) {
  Record row;
  row.set("policy", arms[own].policy.preset).set("arm", arms[own].label).set("model", "policy");
  set_comparison(row, settings, own, reference);
  set_figures(row, settings, own);
  std::size_t best = 0;
  for (const SettingResult& setting : settings) {
    const auto least = std::min_element(
        setting.arms.begin(), setting.arms.end(),
        [](const SettingFigures& a, const SettingFigures& b) { return a.p99 < b.p99; });
    best += least - setting.arms.begin() == static_cast<std::ptrdiff_t>(own) ? 1 : 0;
  }
  row.set("best_p99_share", share_estimate(best, settings.size()));
  for (const Slice& slice : kSlices) {
    const std::string key = "p99_gain_" + std::string(slice.key);
    const std::vector<SettingResult> some =
        settings_within(settings, slice.drawn, slice.low, slice.high);
    if (some.empty()) {
      row.set(key, Value());
    } else {
      row.set(key, median_ratio(gains(some, own, reference, &SettingFigures::p99)).mean);
    }
  }
  return row;
}

Record pair_row(std::span<const SettingResult> settings, std::span<const Arm> arms, std::size_t own,
                std::size_t other) {
  Record row;
  row.set("policy", arms[own].policy.preset).set("arm", arms[own].label).set("model", "pair");
  row.set("against", arm_name(arms[other]));
  set_comparison(row, settings, own, other);
  return row;
}

std::vector<Table> tables(std::size_t arms, const std::string& reference) {
  std::vector<Column> by_slice{{"policy", "policy"}, {"arm", "arm"}};
  for (const Slice& slice : kSlices) {
    by_slice.push_back({"p99_gain_" + std::string(slice.key), std::string(slice.title), 2});
  }
  return {
      {"Over all settings; gain = " + reference + " over this policy, median over the settings",
       {{"policy", "policy"},
        {"arm", "arm"},
        {"ttft_p50_s", "p50 TTFT, ms", 0, 1'000},
        {"ttft_p99_s", "p99 TTFT, ms", 0, 1'000},
        {"prefix_hit_rate", "hit, %", 0, 100},
        {"p99_gain", "p99 gain", 2},
        {"better_p99_share", "ahead at p99 in, %", 0, 100},
        {"p50_no_loss_share", "p50 within 5 % in, %", 0, 100},
        {"best_p99_share", "best of all in, %", 0, 100}},
       arms},
      {"The p99 gain by load, as a share of the fleet's capacity, and by the number of balancers",
       std::move(by_slice), 0, true}};
}

}  // namespace

std::vector<Arm> policy_arms(const Registry& registry) {
  std::vector<Arm> arms;
  for (const PresetInfo& preset : registry.presets()) {
    arms.push_back(preset_arm(preset.name, ""));
    if (preset.name == "least_work") {
      Arm exchange = preset_arm("least_work", "exchange 50 ms");
      exchange.exchange = std::chrono::milliseconds(50);
      arms.push_back(exchange);
      exchange.label = "exchange 50 ms, exact index";
      exchange.index = IndexKind::kExact;
      arms.push_back(std::move(exchange));
    } else if (preset.name == "least_connections") {
      arms.push_back(preset_arm("least_connections", "two choices", {{"choices", 2.0}}));
    } else if (preset.name == "least_kv") {
      Arm live = preset_arm("least_kv", "live");
      live.poll = Duration::zero();
      arms.push_back(std::move(live));
    } else if (preset.name == "session_affinity") {
      Arm pools = preset_arm("session_affinity", "segregation");
      pools.segregated = true;
      arms.push_back(std::move(pools));
    }
  }
  return arms;
}

Result<Report> run_policies(const ExperimentOptions& options, const Registry& registry) {
  const std::vector<Arm> arms = policy_arms(registry);
  if (const Result<void> built = check_arms(arms, registry); !built) return built.error();
  const auto reference =
      static_cast<std::size_t>(std::find_if(arms.begin(), arms.end(), is_reference) - arms.begin());
  if (reference == arms.size()) {
    return Error{ErrorKind::kClient, "no policy session_affinity to compare with"};
  }
  const auto count = static_cast<std::size_t>(seeds_or(options, kSettings, kQuickSettings));
  const SettingRuns how{.runs = kRuns, .requests = options.quick ? kQuickRequests : kRequests};
  const std::vector<SettingResult> settings = run_parallel(
      count, options.jobs,
      [&](std::size_t i) {
        return run_setting(options.first_seed + i, arms, how, options, registry);
      },
      [&](std::size_t done) {
        if (options.progress) options.progress(done, count);
      });

  Report report;
  report.experiment = "policies";
  report.title = "All policies over " + counted(count, "random setting");
  report.seeds = static_cast<int>(count);
  report.scenario.set("settings", count)
      .set("first_seed", options.first_seed)
      .set("runs_per_setting", kRuns)
      .set("requests_per_run", how.requests)
      .set("reference", arm_name(arms[reference]));
  for (std::size_t i = 0; i < arms.size(); ++i) {
    report.rows.push_back(policy_row(settings, arms, i, reference));
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    for (std::size_t j = 0; j < arms.size(); ++j) {
      if (i != j) report.rows.push_back(pair_row(settings, arms, i, j));
    }
  }
  for (const SettingResult& setting : settings) {
    report.rows.push_back(setting_row(setting, arms));
  }
  report.tables = tables(arms.size(), arm_name(arms[reference]));
  report.notes = {"Each setting: " + std::to_string(kRuns) +
                      " runs with common random numbers. Shares with Wilson's interval, median "
                      "gains with that of order statistics, times as geometric means.",
                  "Each policy against each other, and every setting, stand in the JSON file."};
  return report;
}

}  // namespace pointsman::sim
