#include "experiments/policies.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "experiments/compare.h"
#include "experiments/random_setting.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

constexpr int kSettings = 100;
constexpr int kQuickSettings = 12;
// Runs of each setting: its figure is their mean.
constexpr int kRuns = 3;
constexpr std::uint64_t kRequests = 8'000;
constexpr std::uint64_t kQuickRequests = 2'000;
// p50 within this of the reference counts as no loss.
constexpr double kSameP50 = 1.05;

std::string full_name(const Arm& arm) {
  return arm.label.empty() ? arm.policy.preset : arm.policy.preset + " " + arm.label;
}

bool is_reference(const Arm& arm) {
  return arm.policy.preset == "session_affinity" && arm.label == "segregation";
}

// What one arm did in one setting: means over its runs.
struct Figures {
  double p50 = 0;
  double p99 = 0;
  double p99_short = 0;
  double hit = 0;
  double goodput = 0;
  double over_capacity = 0;
};

struct SettingResult {
  Record drawn;
  std::vector<Figures> arms;
};

double mean(std::span<const RunResult> runs, double RunResult::* value, MeasureMean kind) {
  std::vector<double> values;
  for (const RunResult& run : runs) {
    if (std::isfinite(run.*value)) values.push_back(run.*value);
  }
  return (kind == MeasureMean::kGeometric ? geometric_mean(values) : arithmetic_mean(values)).mean;
}

Figures figures_of(std::span<const RunResult> runs) {
  return {.p50 = mean(runs, &RunResult::ttft_p50_s, MeasureMean::kGeometric),
          .p99 = mean(runs, &RunResult::ttft_p99_s, MeasureMean::kGeometric),
          .p99_short = mean(runs, &RunResult::ttft_p99_short_s, MeasureMean::kGeometric),
          .hit = mean(runs, &RunResult::prefix_hit_rate, MeasureMean::kArithmetic),
          .goodput = mean(runs, &RunResult::goodput_rps, MeasureMean::kArithmetic),
          .over_capacity = mean(runs, &RunResult::over_capacity, MeasureMean::kArithmetic)};
}

SettingResult run_setting(const ExperimentOptions& options, const Registry& registry,
                          std::span<const Arm> arms, std::uint64_t seed) {
  RandomSetting setting = draw_setting(seed, registry, options.replicas, options.sharing);
  setting.scenario.measure.requests = options.quick ? kQuickRequests : kRequests;
  SettingResult result;
  result.drawn = std::move(setting.drawn);
  std::vector<RunResult> runs(kRuns);
  for (const Arm& one : arms) {
    for (std::uint64_t i = 0; i < runs.size(); ++i) {
      runs[i] = run(setting.scenario, one, registry, seed * kRuns + i);
    }
    result.arms.push_back(figures_of(runs));
  }
  return result;
}

// value(other) / value(own) in every setting: above 1 where `own` is the faster one.
std::vector<double> gains(std::span<const SettingResult> settings, std::size_t own,
                          std::size_t other, double Figures::* value) {
  std::vector<double> ratios;
  for (const SettingResult& setting : settings) {
    const double mine = setting.arms[own].*value;
    const double theirs = setting.arms[other].*value;
    if (mine > 0 && theirs > 0) ratios.push_back(theirs / mine);
  }
  return ratios;
}

// How `own` does against `other`.
void set_comparison(Record& row, std::span<const SettingResult> settings, std::size_t own,
                    std::size_t other) {
  const std::vector<double> p99 = gains(settings, own, other, &Figures::p99);
  const std::vector<double> p50 = gains(settings, own, other, &Figures::p50);
  row.set("better_p99_share", share_above(p99, 1));
  row.set("p99_gain", median_ratio(p99));
  row.set("better_p50_share", share_above(p50, 1));
  row.set("p50_gain", median_ratio(p50));
  row.set("p50_no_loss_share", share_above(p50, 1 / kSameP50));
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

std::vector<SettingResult> part(std::span<const SettingResult> settings, const Slice& slice) {
  std::vector<SettingResult> found;
  for (const SettingResult& setting : settings) {
    const double value = setting.drawn.number(slice.drawn);
    if (value >= slice.low && value < slice.high) found.push_back(setting);
  }
  return found;
}

Record policy_row(std::span<const SettingResult> settings, std::span<const Arm> arms,
                  std::size_t own, std::size_t reference) {
  Record row;
  row.set("policy", arms[own].policy.preset).set("arm", arms[own].label).set("model", "policy");
  set_comparison(row, settings, own, reference);
  std::vector<double> p50;
  std::vector<double> p99;
  std::vector<double> hits;
  std::size_t best = 0;
  std::size_t over = 0;
  for (const SettingResult& setting : settings) {
    const Figures& figures = setting.arms[own];
    p50.push_back(figures.p50);
    p99.push_back(figures.p99);
    hits.push_back(figures.hit);
    over += figures.over_capacity > 0.5 ? 1 : 0;
    const auto least =
        std::min_element(setting.arms.begin(), setting.arms.end(),
                         [](const Figures& a, const Figures& b) { return a.p99 < b.p99; });
    best += least - setting.arms.begin() == static_cast<std::ptrdiff_t>(own) ? 1 : 0;
  }
  // Bare means: settings differ by factors, so an interval over them would say nothing of a policy.
  row.set("ttft_p50_s", geometric_mean(p50).mean).set("ttft_p99_s", geometric_mean(p99).mean);
  row.set("prefix_hit_rate", arithmetic_mean(hits).mean);
  row.set("best_p99_share", share_estimate(best, settings.size()));
  row.set("over_capacity_share", share_estimate(over, settings.size()));
  for (const Slice& slice : kSlices) {
    const std::string key = "p99_gain_" + std::string(slice.key);
    const std::vector<SettingResult> some = part(settings, slice);
    if (some.empty()) {
      row.set(key, Value());
    } else {
      row.set(key, median_ratio(gains(some, own, reference, &Figures::p99)).mean);
    }
  }
  return row;
}

Record pair_row(std::span<const SettingResult> settings, std::span<const Arm> arms, std::size_t own,
                std::size_t other) {
  Record row;
  row.set("policy", arms[own].policy.preset).set("arm", arms[own].label).set("model", "pair");
  row.set("against", full_name(arms[other]));
  set_comparison(row, settings, own, other);
  return row;
}

Record setting_row(const SettingResult& setting, std::span<const Arm> arms, std::uint64_t seed) {
  Record row;
  row.set("model", "setting").set("seed", seed).set("drawn", setting.drawn);
  Value::List list;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const Figures& figures = setting.arms[i];
    list.emplace_back(Record()
                          .set("policy", arms[i].policy.preset)
                          .set("arm", arms[i].label)
                          .set("ttft_p50_s", figures.p50)
                          .set("ttft_p99_s", figures.p99)
                          .set("ttft_p99_short_s", figures.p99_short)
                          .set("prefix_hit_rate", figures.hit)
                          .set("goodput_rps", figures.goodput)
                          .set("over_capacity", figures.over_capacity));
  }
  row.set("policies", std::move(list));
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
  for (const Arm& one : arms) {
    const auto built = registry.build(one.policy);
    if (!built) return built.error();
  }
  const auto reference =
      static_cast<std::size_t>(std::find_if(arms.begin(), arms.end(), is_reference) - arms.begin());
  if (reference == arms.size()) {
    return Error{ErrorKind::kClient, "no policy session_affinity to compare with"};
  }
  const auto count = static_cast<std::size_t>(seeds_or(options, kSettings, kQuickSettings));
  const std::vector<SettingResult> settings = run_parallel(
      count, options.jobs > 0 ? options.jobs : default_jobs(),
      [&](std::size_t i) { return run_setting(options, registry, arms, options.first_seed + i); },
      [&](std::size_t done) {
        if (options.progress) options.progress(done, count);
      });

  Report report;
  report.experiment = "policies";
  report.title = "All policies over " + std::to_string(count) + " random settings";
  report.seeds = static_cast<int>(count);
  report.scenario.set("settings", count)
      .set("first_seed", options.first_seed)
      .set("runs_per_setting", kRuns)
      .set("requests_per_run", options.quick ? kQuickRequests : kRequests)
      .set("reference", full_name(arms[reference]));
  for (std::size_t i = 0; i < arms.size(); ++i) {
    report.rows.push_back(policy_row(settings, arms, i, reference));
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    for (std::size_t j = 0; j < arms.size(); ++j) {
      if (i != j) report.rows.push_back(pair_row(settings, arms, i, j));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    report.rows.push_back(setting_row(settings[i], arms, options.first_seed + i));
  }
  report.tables = tables(arms.size(), full_name(arms[reference]));
  report.notes = {"Each setting: " + std::to_string(kRuns) +
                      " runs with common random numbers. Shares with Wilson's interval, median "
                      "gains with that of order statistics, times as geometric means.",
                  "Each policy against each other, and every setting, stand in the JSON file."};
  return report;
}

}  // namespace pointsman::sim
