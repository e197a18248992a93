#include "experiments/best.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/options.h"
#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/settings.h"
#include "experiments/statistics.h"

namespace pointsman::sim {
namespace {

using std::chrono::milliseconds;

constexpr int kSettings = 60;
constexpr int kQuickSettings = 12;
// Runs of each setting: its figure is their mean.
constexpr std::uint64_t kRuns = 2;
constexpr std::uint32_t kNamedRequests = 15'000;
constexpr std::uint32_t kRequests = 8'000;
constexpr std::uint32_t kQuickRequests = 3'000;
// Constants were tuned with seeds below this.
constexpr std::uint64_t kFirstSeed = 10'001;
// The load of a random setting, as a share of what round robin can carry.
constexpr double kLowLoad = 0.4;
constexpr double kHighLoad = 0.95;

constexpr std::string_view kNamed[] = {"set_a", "ref70"};
constexpr std::uint32_t kNamedBalancers[] = {1, 4};

// Places in all_arms().
constexpr std::size_t kReference = 1;
constexpr std::size_t kBest = 2;

// The two rows of the published table to compare with; the second is kReference.
std::vector<Arm> affinity_arms() {
  std::vector<Arm> arms = {preset_arm("session_affinity", "kv-valve"),
                           preset_arm("session_affinity", "segregation")};
  arms[0].saturation = SaturationLimits{.kv = 0.9, .queue = 1e9, .prefill_tokens = 1e18};
  arms[kReference].segregated = true;
  return arms;
}

// `exchange` of zero: own counters only.
Arm work(std::string_view label, IndexKind index, milliseconds exchange) {
  Arm arm = preset_arm("least_work", label);
  arm.index = index;
  arm.exchange = exchange;
  return arm;
}

Arm best() {
  return work("exact index, exchange 50 ms", IndexKind::kExact, milliseconds(50));
}

Arm shipped() {
  return work("own index, no exchange", IndexKind::kOwn, milliseconds(0));
}

std::vector<Arm> all_arms() {
  std::vector<Arm> arms = affinity_arms();
  arms.push_back(best());
  arms.push_back(work("exact index, exchange 200 ms", IndexKind::kExact, milliseconds(200)));
  arms.push_back(best());
  arms.back().label += ", events 1 s late";
  arms.back().event_delay = std::chrono::seconds(1);
  arms.push_back(work("shared index, exchange 50 ms", IndexKind::kShared, milliseconds(50)));
  arms.push_back(work("exact index, no exchange", IndexKind::kExact, milliseconds(0)));
  arms.push_back(work("own index, exchange 50 ms", IndexKind::kOwn, milliseconds(50)));
  arms.push_back(shipped());
  arms.push_back(shipped());
  arms.back().label += ", no home";
  arms.back().policy.options.emplace_back("home_trust", 0.0);
  return arms;
}

// The default with one thing changed.
std::vector<Arm> option_arms() {
  static constexpr std::pair<const char*, double> kChanges[] = {
      {"private_weight", 1}, {"private_weight", 2}, {"private_weight", 6},  {"shared_weight", 3},
      {"base_tokens", 100},  {"decode_tokens", 0},  {"decode_tokens", 256}, {"kv_weight", 0},
      {"speed_gain", 0},     {"choices", 4}};
  std::vector<Arm> arms;
  for (const auto& [option, value] : kChanges) {
    Arm arm = best();
    arm.policy.options.emplace_back(option, value);
    arm.label = std::string(option) + " " + to_text(value);
    arms.push_back(std::move(arm));
  }
  return arms;
}

// --- Named scenarios

struct Case {
  std::string scenario;
  std::string change;
  Scenario setting;
  std::vector<Arm> arms;
};

Scenario named(std::string_view name, const ExperimentOptions& options) {
  return scenario_for(options, name, options.quick ? kQuickRequests : kNamedRequests);
}

std::vector<Case> named_cases(const ExperimentOptions& options) {
  std::vector<Case> cases;
  for (const std::string_view name : kNamed) {
    for (const std::uint32_t balancers : kNamedBalancers) {
      Case one{std::string(name), "", named(name, options), all_arms()};
      one.setting.balancers.count = balancers;
      // One balancer has nobody to exchange with, and its index is a shared one.
      if (balancers == 1) {
        std::vector<Arm> arms = std::move(one.arms);
        one.arms = {arms[0], arms[kReference], best(), shipped()};
        one.arms[kBest].label = "exact index";
        one.arms.back().label = "own index";
      }
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::vector<Case> change_cases(const ExperimentOptions& options) {
  std::vector<Case> cases;
  for (const std::string_view name : kNamed) {
    const Scenario plain = named(name, options);
    const auto add = [&](std::string change) -> Case& {
      std::vector<Arm> arms = affinity_arms();
      arms.push_back(best());
      arms.push_back(shipped());
      return cases.emplace_back(std::string(name), std::move(change), plain, std::move(arms));
    };
    add("bursts: arrivals of cv 3").setting.arrivals.cv = 3;
    Case& slow = add("one replica at a third of the speed");
    slow.setting.replicas[0].slowness = 3;
    slow.arms.push_back(best());
    slow.arms.back().label += ", speeds not learnt";
    slow.arms.back().policy.options.emplace_back("speed_gain", 0.0);
    Case& weighed = add("one replica at a third of the speed, weight 1/3");
    weighed.setting.replicas[0].slowness = 3;
    weighed.setting.replicas[0].weight = 1.0 / 3;
    const Duration length =
        from_seconds(static_cast<double>(plain.measure.requests) / plain.arrivals.rate);
    add("one replica dies and comes back empty").setting.faults = {
        {.kind = FaultKind::kDies, .at = length * 2 / 5, .replica = 0},
        {.kind = FaultKind::kRestarts, .at = length / 2, .replica = 0}};
    Case& hot = add("half of the conversations begin with one prompt of 8,000 tokens");
    hot.setting.workload.system_prompts = 1;
    hot.setting.workload.system_share = 0.5;
    hot.setting.workload.system_prompt = {.median = 8'000, .sigma = 0};
    hot.setting.arrivals.rate *= 0.8;
    Case& small = add("KV caches a third of the size");
    for (ReplicaSpec& replica : small.setting.replicas) replica.engine.blocks /= 3;
    small.arms.push_back(best());
    small.arms.back().label += ", kv_weight 0";
    small.arms.back().policy.options.emplace_back("kv_weight", 0.0);
  }
  return cases;
}

std::vector<Record> case_rows(std::span<const Case> cases, std::string_view model,
                              const Registry& registry, const CompareOptions& compare) {
  std::vector<Record> rows;
  for (const Case& one : cases) {
    std::vector<Arm> arms;
    for (const Arm& arm : one.arms) arms.push_back(configured(arm, one.setting));
    const std::vector<std::vector<RunResult>> results =
        run_arms(one.setting, arms, registry, compare);
    for (std::size_t i = 0; i < one.arms.size(); ++i) {
      Record row = arm_row(one.arms[i], results[i]);
      row.set("model", model).set("scenario", one.scenario);
      if (!one.change.empty()) row.set("change", one.change);
      row.set("p99_gain", measure_ratio(results[kReference], results[i], &RunResult::ttft_p99_s));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::size_t runs_of(std::span<const Case> cases, int seeds) {
  std::size_t runs = 0;
  for (const Case& one : cases) runs += one.arms.size() * static_cast<std::size_t>(seeds);
  return runs;
}

// --- Random settings

Record comparison_row(const Arm& arm, std::string_view model,
                      std::span<const SettingResult> settings, std::size_t own, std::size_t other) {
  Record row;
  row.set("policy", arm.policy.preset).set("arm", arm.label).set("model", model);
  set_comparison(row, settings, own, other);
  set_figures(row, settings, own);
  return row;
}

Record random_row(const Arm& arm, std::span<const SettingResult> settings, std::size_t own) {
  Record row = comparison_row(arm, "random", settings, own, kReference);
  const auto part = [&](const std::string& key, const std::vector<SettingResult>& some) {
    if (some.empty()) {
      row.set_unknown("p99_gain_" + key);
    } else {
      row.set("p99_gain_" + key, median_ratio(gains(some, own, kReference, &SettingFigures::p99)));
    }
  };
  for (const std::uint32_t number : {1U, 2U, 4U, 8U}) {
    part("balancers_" + std::to_string(number),
         settings_within(settings, "balancers", number, number + 1));
  }
  for (const auto& [low, high] : {std::pair{40, 60}, std::pair{60, 80}, std::pair{80, 95}}) {
    part("load_" + std::to_string(low) + "_" + std::to_string(high),
         settings_within(settings, "load", low / 100.0, high / 100.0));
  }
  // Without the settings in which the reference's queues grow without end.
  std::vector<SettingResult> within(settings.begin(), settings.end());
  std::erase_if(within, [](const SettingResult& setting) {
    return setting.arms[kReference].over_capacity > 0.5;
  });
  part("within_capacity", within);
  return row;
}

std::vector<Table> tables(std::size_t named, std::size_t random, std::size_t options,
                          std::size_t changes) {
  const Column policy{"policy", "policy"};
  const Column arm{"arm", "arm"};
  const Column p50{"ttft_p50_s", "p50 TTFT ms", 0, 1'000};
  const Column p99{"ttft_p99_s", "p99 TTFT ms", 0, 1'000};
  const Column hit{"prefix_hit_rate", "hit %", 1, 100};
  const Column gain{"p99_gain", "p99 gain", 2};
  return {
      {"Named scenarios; gain = p99 of session_affinity with segregation over the arm's own",
       {{"scenario", "scenario"}, {"balancers", "L"}, policy, arm, p50, p99, hit, gain},
       named},
      {"Random settings; medians of the gain",
       {policy,
        arm,
        hit,
        gain,
        {"better_p99_share", "ahead at p99 in, %", 0, 100},
        {"p50_no_loss_share", "p50 within 5 % in, %", 0, 100},
        {"p99_gain_load_40_60", "load 40-60 %", 2},
        {"p99_gain_load_60_80", "60-80 %", 2},
        {"p99_gain_load_80_95", "80-95 %", 2}},
       random},
      {"One constant changed; gain = p99 of the default over the changed one's, geometric means",
       {arm,
        {"p99_gain_mean", "p99 gain", 3},
        {"p50_gain_mean", "p50 gain", 3},
        {"better_p99_share", "ahead at p99 in, %", 0, 100},
        hit},
       options},
      {"Named scenarios, one thing changed; four balancers",
       {{"scenario", "scenario"}, {"change", "change"}, policy, arm, p50, p99, gain},
       changes},
  };
}

}  // namespace

Result<Report> run_best(const ExperimentOptions& options, const Registry& registry) {
  const std::vector<Arm> arms = all_arms();
  const std::vector<Arm> variants = option_arms();
  std::vector<Arm> run_in_settings = arms;
  run_in_settings.insert(run_in_settings.end(), variants.begin(), variants.end());
  if (const Result<void> built = check_arms(run_in_settings, registry); !built) {
    return built.error();
  }
  const SettingRuns how{.runs = kRuns,
                        .requests = options.quick ? kQuickRequests : kRequests,
                        .low_load = kLowLoad,
                        .high_load = kHighLoad};
  const auto count = static_cast<std::size_t>(seeds_or(options, kSettings, kQuickSettings));
  const std::uint64_t first = kFirstSeed + options.first_seed - 1;
  CompareOptions compare;
  compare.seeds = std::max(2, static_cast<int>(count) / 3);
  const int change_seeds = std::max(2, static_cast<int>(count) / 6);
  compare.first_seed = first;
  compare.jobs = options.jobs;
  const std::vector<Case> plain = named_cases(options);
  const std::vector<Case> changed = change_cases(options);
  const std::size_t setting_runs = run_in_settings.size() * kRuns;
  const std::size_t all =
      runs_of(plain, compare.seeds) + runs_of(changed, change_seeds) + count * setting_runs;
  std::size_t before = 0;
  compare.progress = [&](std::size_t done, std::size_t of) {
    if (options.progress) options.progress(before + done, all);
    if (done == of) before += of;
  };

  Report report;
  report.rows = case_rows(plain, "named", registry, compare);
  const std::size_t named_rows = report.rows.size();
  const std::vector<SettingResult> settings = run_parallel(
      count, compare.jobs,
      [&](std::size_t i) {
        return run_setting(first + i, run_in_settings, how, options, registry);
      },
      [&](std::size_t done) {
        if (options.progress) options.progress(before + done * setting_runs, all);
      });
  before += count * setting_runs;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    report.rows.push_back(random_row(arms[i], settings, i));
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    report.rows.push_back(comparison_row(variants[i], "option", settings, arms.size() + i, kBest));
  }
  const int named_seeds = std::exchange(compare.seeds, change_seeds);
  const std::vector<Record> changes = case_rows(changed, "change", registry, compare);
  report.rows.insert(report.rows.end(), changes.begin(), changes.end());
  for (const SettingResult& setting : settings) {
    report.rows.push_back(setting_row(setting, arms));
  }

  report.experiment = "best";
  report.title =
      "The default policy against affinity and segregation: " + counted(count, "random setting") +
      ", " + std::to_string(named_seeds) + " runs of each named one, " +
      std::to_string(change_seeds) + " with a constant changed";
  report.seeds = static_cast<int>(count);
  report.scenario.set("settings", count)
      .set("first_seed", first)
      .set("runs_per_setting", kRuns)
      .set("requests_per_run", how.requests)
      .set("named_runs", named_seeds)
      .set("change_runs", change_seeds)
      .set("named_requests", options.quick ? kQuickRequests : kNamedRequests)
      .set("load_low", kLowLoad)
      .set("load_high", kHighLoad);
  report.tables = tables(named_rows, arms.size(), variants.size(), changes.size());
  report.notes = {
      "Gains above 1: the arm is the faster one. Medians with the interval of order statistics, "
      "means of ratios with Student's on logarithms, shares with Wilson's.",
      "own index, no exchange: what several routers get until they exchange charges."};
  return report;
}

}  // namespace pointsman::sim
