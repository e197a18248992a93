#include "experiments/best.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/options.h"
#include "experiments/compare.h"
#include "experiments/random_setting.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/chance.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

using std::chrono::milliseconds;

constexpr int kSettings = 60;
constexpr int kQuickSettings = 12;
// Runs of each setting: its figure is their mean.
constexpr std::uint64_t kRuns = 2;
constexpr std::uint64_t kNamedRequests = 15'000;
constexpr std::uint64_t kRequests = 8'000;
constexpr std::uint64_t kQuickRequests = 3'000;
// Constants were tuned with seeds below this.
constexpr std::uint64_t kFirstSeed = 10'001;
// The load of a random setting, as a share of what round robin can carry.
constexpr double kLowLoad = 0.4;
constexpr double kHighLoad = 0.95;
// p50 within this of the reference counts as no loss.
constexpr double kSameP50 = 1.05;

constexpr std::string_view kNamed[] = {"set_a", "ref70"};
constexpr std::uint32_t kNamedBalancers[] = {1, 4};

// Places in arms_for().
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
Arm work(std::string_view label, std::uint32_t balancers, IndexKind index, milliseconds exchange,
         double home_trust) {
  Arm arm = preset_arm("least_work", label,
                       {{"routers", static_cast<double>(balancers)}, {"home_trust", home_trust}});
  arm.index = index;
  arm.exchange = exchange;
  return arm;
}

Arm best(std::uint32_t balancers) {
  return work("exact index, exchange 50 ms", balancers, IndexKind::kExact, milliseconds(50), 0);
}

Arm shipped(std::uint32_t balancers) {
  return work("own index, no exchange", balancers, IndexKind::kOwn, milliseconds(0), 0.95);
}

std::vector<Arm> arms_for(std::uint32_t balancers) {
  std::vector<Arm> arms = affinity_arms();
  arms.push_back(best(balancers));
  arms.push_back(
      work("exact index, exchange 200 ms", balancers, IndexKind::kExact, milliseconds(200), 0));
  arms.push_back(best(balancers));
  arms.back().label += ", events 1 s late";
  arms.back().event_delay = std::chrono::seconds(1);
  arms.push_back(
      work("shared index, exchange 50 ms", balancers, IndexKind::kShared, milliseconds(50), 0));
  arms.push_back(
      work("exact index, no exchange", balancers, IndexKind::kExact, milliseconds(0), 0));
  arms.push_back(
      work("own index, exchange 50 ms", balancers, IndexKind::kOwn, milliseconds(50), 0.95));
  arms.push_back(shipped(balancers));
  arms.push_back(
      work("own index, no exchange, no home", balancers, IndexKind::kOwn, milliseconds(0), 0));
  return arms;
}

// The default with one thing changed.
std::vector<Arm> option_arms(std::uint32_t balancers) {
  static constexpr std::pair<const char*, double> kChanges[] = {
      {"private_weight", 1}, {"private_weight", 2}, {"private_weight", 6},  {"shared_weight", 3},
      {"base_tokens", 100},  {"decode_tokens", 0},  {"decode_tokens", 256}, {"kv_weight", 0},
      {"speed_gain", 0},     {"choices", 4},        {"home_trust", 0.95}};
  std::vector<Arm> arms;
  for (const auto& [option, value] : kChanges) {
    Arm arm = best(balancers);
    auto& options = arm.policy.options;
    std::erase_if(options, [&](const auto& entry) { return entry.first == option; });
    options.emplace_back(option, value);
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
  Scenario scenario = *find_scenario_preset(name);
  scenario.measure.requests = options.quick ? kQuickRequests : kNamedRequests;
  if (options.replicas) set_replicas(scenario, static_cast<std::uint32_t>(*options.replicas));
  if (options.sharing) set_sharing(scenario, *options.sharing);
  return scenario;
}

std::vector<Case> named_cases(const ExperimentOptions& options) {
  std::vector<Case> cases;
  for (const std::string_view name : kNamed) {
    for (const std::uint32_t balancers : kNamedBalancers) {
      Case one{std::string(name), "", named(name, options), arms_for(balancers)};
      one.setting.balancers.count = balancers;
      // One balancer has nobody to exchange with, and its index is a shared one.
      if (balancers == 1) {
        std::vector<Arm> arms = std::move(one.arms);
        one.arms = {arms[0], arms[kReference], best(1), shipped(1)};
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
    const std::uint32_t balancers = plain.balancers.count;
    const auto add = [&](std::string change) -> Case& {
      std::vector<Arm> arms = affinity_arms();
      arms.push_back(best(balancers));
      arms.push_back(shipped(balancers));
      return cases.emplace_back(std::string(name), std::move(change), plain, std::move(arms));
    };
    add("bursts: arrivals of cv 3").setting.arrivals.cv = 3;
    Case& slow = add("one replica at a third of the speed");
    slow.setting.replicas[0].slowness = 3;
    slow.arms.push_back(best(balancers));
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
    small.arms.push_back(best(balancers));
    small.arms.back().label += ", kv_weight 0";
    small.arms.back().policy.options.emplace_back("kv_weight", 0.0);
  }
  return cases;
}

std::vector<Record> case_rows(std::span<const Case> cases, std::string_view model,
                              const Registry& registry, const CompareOptions& compare) {
  std::vector<Record> rows;
  for (const Case& one : cases) {
    const std::vector<std::vector<RunResult>> results =
        run_arms(one.setting, one.arms, registry, compare);
    const auto p99 = [&](std::size_t arm) {
      std::vector<double> values;
      for (const RunResult& result : results[arm]) values.push_back(result.ttft_p99_s);
      return values;
    };
    for (std::size_t i = 0; i < one.arms.size(); ++i) {
      Record row = arm_row(one.arms[i], results[i]);
      row.set("model", model).set("scenario", one.scenario);
      if (!one.change.empty()) row.set("change", one.change);
      row.set("p99_gain", paired_ratio(p99(kReference), p99(i)));
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

// What one arm did in one setting: means over its runs.
struct Figures {
  double p50 = 0;
  double p99 = 0;
  double hit = 0;
  double over_capacity = 0;
};

struct SettingResult {
  Record drawn;
  double load = 0;
  std::uint32_t balancers = 0;
  std::vector<Figures> arms;  // arms_for(), then option_arms()
};

SettingResult run_setting(const ExperimentOptions& options, const Registry& registry,
                          std::uint64_t seed) {
  RandomSetting setting = draw_setting(seed, registry, options.replicas, options.sharing);
  Scenario& scenario = setting.scenario;
  scenario.measure.requests = options.quick ? kQuickRequests : kRequests;
  SettingResult result;
  result.load = kLowLoad + (kHighLoad - kLowLoad) * Rng(mixed(seed ^ 0x6c6f'6164ULL)).unit();
  scenario.arrivals.rate = setting.capacity_rps * result.load;
  result.balancers = scenario.balancers.count;
  result.drawn = std::move(setting.drawn);
  result.drawn.set("load", result.load).set("rate_rps", scenario.arrivals.rate);

  std::vector<Arm> arms = arms_for(result.balancers);
  for (Arm& arm : option_arms(result.balancers)) arms.push_back(std::move(arm));
  for (const Arm& arm : arms) {
    std::vector<double> p50;
    std::vector<double> p99;
    Figures figures;
    for (std::uint64_t i = 0; i < kRuns; ++i) {
      const RunResult made = run(scenario, arm, registry, seed * kRuns + i);
      p50.push_back(made.ttft_p50_s);
      p99.push_back(made.ttft_p99_s);
      figures.hit += made.prefix_hit_rate / kRuns;
      figures.over_capacity += made.over_capacity / kRuns;
    }
    figures.p50 = geometric_mean(p50).mean;
    figures.p99 = geometric_mean(p99).mean;
    result.arms.push_back(figures);
  }
  return result;
}

// value(other) / value(own) in each setting that `take` takes: above 1 where `own` is the faster.
template <typename Take>
std::vector<double> gains(std::span<const SettingResult> settings, std::size_t own,
                          std::size_t other, double Figures::* value, const Take& take) {
  std::vector<double> ratios;
  for (const SettingResult& setting : settings) {
    if (take(setting)) ratios.push_back(setting.arms[other].*value / (setting.arms[own].*value));
  }
  return ratios;
}

constexpr auto kAllSettings = [](const SettingResult&) { return true; };

void set_common(Record& row, const Arm& arm, std::string_view model,
                std::span<const SettingResult> settings, std::size_t own, std::size_t other) {
  row.set("policy", arm.policy.preset).set("arm", arm.label).set("model", model);
  const auto p99 = gains(settings, own, other, &Figures::p99, kAllSettings);
  const auto p50 = gains(settings, own, other, &Figures::p50, kAllSettings);
  row.set("p99_gain", median_ratio(p99)).set("p99_gain_mean", geometric_mean(p99));
  row.set("better_p99_share", share_above(p99, 1));
  row.set("p50_gain", median_ratio(p50)).set("p50_gain_mean", geometric_mean(p50));
  row.set("p50_no_loss_share", share_above(p50, 1 / kSameP50));
  double hits = 0;
  std::size_t over = 0;
  for (const SettingResult& setting : settings) {
    hits += setting.arms[own].hit;
    over += setting.arms[own].over_capacity > 0.5 ? 1 : 0;
  }
  row.set("prefix_hit_rate", hits / static_cast<double>(settings.size()));
  row.set("over_capacity_share", share_estimate(over, settings.size()));
}

Record random_row(const Arm& arm, std::span<const SettingResult> settings, std::size_t own) {
  Record row;
  set_common(row, arm, "random", settings, own, kReference);
  const auto part = [&](const std::string& key, const auto& take) {
    const auto p99 = gains(settings, own, kReference, &Figures::p99, take);
    if (p99.empty()) {
      row.set("p99_gain_" + key, Value());
    } else {
      row.set("p99_gain_" + key, median_ratio(p99));
    }
  };
  for (const std::uint32_t number : {1U, 2U, 4U, 8U}) {
    part("balancers_" + std::to_string(number),
         [number](const SettingResult& setting) { return setting.balancers == number; });
  }
  for (const auto& percent : {std::pair{40, 60}, std::pair{60, 80}, std::pair{80, 95}}) {
    part("load_" + std::to_string(percent.first) + "_" + std::to_string(percent.second),
         [percent](const SettingResult& setting) {
           return setting.load >= percent.first / 100.0 && setting.load < percent.second / 100.0;
         });
  }
  // Without the settings in which the reference's queues grow without end.
  part("within_capacity",
       [](const SettingResult& setting) { return setting.arms[kReference].over_capacity <= 0.5; });
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
                          .set("prefix_hit_rate", figures.hit)
                          .set("over_capacity", figures.over_capacity));
  }
  row.set("policies", std::move(list));
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
  for (const Arm& arm : arms_for(4)) {
    const auto built = registry.build(arm.policy);
    if (!built) return built.error();
  }
  const auto count = static_cast<std::size_t>(seeds_or(options, kSettings, kQuickSettings));
  const std::uint64_t first = kFirstSeed + options.first_seed - 1;
  CompareOptions compare;
  compare.seeds = std::max(2, static_cast<int>(count) / 3);
  const int change_seeds = std::max(2, static_cast<int>(count) / 6);
  compare.first_seed = first;
  compare.jobs = options.jobs > 0 ? options.jobs : default_jobs();
  const std::vector<Case> plain = named_cases(options);
  const std::vector<Case> changed = change_cases(options);
  const std::size_t setting_runs = (arms_for(1).size() + option_arms(1).size()) * kRuns;
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
      count, compare.jobs, [&](std::size_t i) { return run_setting(options, registry, first + i); },
      [&](std::size_t done) {
        if (options.progress) options.progress(before + done * setting_runs, all);
      });
  before += count * setting_runs;
  const std::vector<Arm> arms = arms_for(1);
  const std::vector<Arm> variants = option_arms(1);
  for (std::size_t i = 0; i < arms.size(); ++i) {
    report.rows.push_back(random_row(arms[i], settings, i));
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    Record& row = report.rows.emplace_back();
    set_common(row, variants[i], "option", settings, arms.size() + i, kBest);
  }
  const int named_seeds = std::exchange(compare.seeds, change_seeds);
  const std::vector<Record> changes = case_rows(changed, "change", registry, compare);
  report.rows.insert(report.rows.end(), changes.begin(), changes.end());
  for (std::size_t i = 0; i < count; ++i) {
    report.rows.push_back(setting_row(settings[i], arms, first + i));
  }

  report.experiment = "best";
  report.title = "The default policy against affinity and segregation: " + std::to_string(count) +
                 " random settings, " + std::to_string(named_seeds) + " runs of each named one";
  report.seeds = static_cast<int>(count);
  report.scenario.set("settings", count)
      .set("first_seed", first)
      .set("runs_per_setting", kRuns)
      .set("requests_per_run", options.quick ? kQuickRequests : kRequests)
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
