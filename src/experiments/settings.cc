#include "experiments/settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "experiments/compare.h"
#include "experiments/random_setting.h"
#include "sim/chance.h"
#include "sim/cluster.h"
#include "sim/run_result.h"

namespace pointsman::sim {
namespace {

constexpr std::uint32_t kMostDrawn = 16;  // replicas of draw_setting()

// p50 within this of the other's counts as no loss.
constexpr double kSameP50 = 1.05;

std::vector<double> finite(std::span<const RunResult> runs, double RunResult::* value) {
  std::vector<double> values;
  for (const RunResult& run : runs) {
    if (std::isfinite(run.*value)) values.push_back(run.*value);
  }
  return values;
}

SettingFigures figures_of(std::span<const RunResult> runs) {
  const auto time = [&](double RunResult::* value) {
    return geometric_mean(finite(runs, value)).mean;
  };
  const auto mean = [&](double RunResult::* value) {
    return arithmetic_mean(finite(runs, value)).mean;
  };
  return {.p50 = time(&RunResult::ttft_p50_s),
          .p99 = time(&RunResult::ttft_p99_s),
          .p99_short = time(&RunResult::ttft_p99_short_s),
          .hit = mean(&RunResult::prefix_hit_rate),
          .goodput = mean(&RunResult::goodput_rps),
          .over_capacity = mean(&RunResult::over_capacity)};
}

}  // namespace

SettingResult run_setting(std::uint64_t seed, std::span<const Arm> arms, const SettingRuns& how,
                          const ExperimentOptions& options, const Registry& registry) {
  RandomSetting setting = draw_setting(seed, registry, options.replicas, options.sharing);
  Scenario& scenario = setting.scenario;
  // A larger fleet than any that is drawn has its requests in less time: it gets more of them.
  const auto fleet = static_cast<std::uint32_t>(scenario.replicas.size());
  scenario.measure.requests =
      fleet <= kMostDrawn
          ? how.requests
          : static_cast<std::uint32_t>(std::uint64_t{how.requests} * fleet / kMostDrawn);
  SettingResult result;
  result.seed = seed;
  result.drawn = std::move(setting.drawn);
  if (how.low_load < how.high_load) {
    const double load =
        how.low_load + (how.high_load - how.low_load) * Rng(mixed(seed ^ 0x6c6f'6164ULL)).unit();
    scenario.arrivals.rate = setting.capacity_rps * load;
    result.drawn.set("load", load).set("rate_rps", scenario.arrivals.rate);
  }
  std::vector<RunResult> runs(how.runs);
  for (const Arm& arm : arms) {
    const Arm one = configured(arm, scenario);
    for (std::uint64_t i = 0; i < runs.size(); ++i) {
      runs[i] = run(scenario, one, registry, seed * how.runs + i);
    }
    result.arms.push_back(figures_of(runs));
  }
  return result;
}

std::vector<SettingResult> settings_within(std::span<const SettingResult> settings,
                                           std::string_view drawn, double low, double high) {
  std::vector<SettingResult> found;
  std::copy_if(settings.begin(), settings.end(), std::back_inserter(found),
               [&](const SettingResult& setting) {
                 const double value = setting.drawn.number(drawn);
                 return value >= low && value < high;
               });
  return found;
}

std::vector<double> gains(std::span<const SettingResult> settings, std::size_t own,
                          std::size_t other, double SettingFigures::* value) {
  std::vector<double> ratios;
  for (const SettingResult& setting : settings) {
    const double mine = setting.arms[own].*value;
    const double theirs = setting.arms[other].*value;
    if (mine > 0 && theirs > 0) ratios.push_back(theirs / mine);
  }
  return ratios;
}

void set_comparison(Record& row, std::span<const SettingResult> settings, std::size_t own,
                    std::size_t other) {
  const std::vector<double> p99 = gains(settings, own, other, &SettingFigures::p99);
  const std::vector<double> p50 = gains(settings, own, other, &SettingFigures::p50);
  row.set("better_p99_share", share_above(p99, 1));
  row.set("p99_gain", median_ratio(p99)).set("p99_gain_mean", geometric_mean(p99));
  row.set("better_p50_share", share_above(p50, 1));
  row.set("p50_gain", median_ratio(p50)).set("p50_gain_mean", geometric_mean(p50));
  row.set("p50_no_loss_share", share_above(p50, 1 / kSameP50));
}

void set_figures(Record& row, std::span<const SettingResult> settings, std::size_t own) {
  std::vector<double> p50;
  std::vector<double> p99;
  std::vector<double> hits;
  std::size_t over = 0;
  for (const SettingResult& setting : settings) {
    const SettingFigures& figures = setting.arms[own];
    p50.push_back(figures.p50);
    p99.push_back(figures.p99);
    hits.push_back(figures.hit);
    over += figures.over_capacity > 0.5 ? 1 : 0;
  }
  row.set("ttft_p50_s", geometric_mean(p50).mean).set("ttft_p99_s", geometric_mean(p99).mean);
  row.set("prefix_hit_rate", arithmetic_mean(hits).mean);
  row.set("over_capacity_share", share_estimate(over, settings.size()));
}

Record setting_row(const SettingResult& setting, std::span<const Arm> arms) {
  Record row;
  row.set("model", "setting").set("seed", setting.seed).set("drawn", setting.drawn);
  Value::List list;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const SettingFigures& figures = setting.arms[i];
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
  return row.set("policies", std::move(list));
}

}  // namespace pointsman::sim
