#include "experiments/valve.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

constexpr int kSeeds = 20;
constexpr int kQuickSeeds = 4;
constexpr std::uint32_t kRequests = 15'000;
constexpr std::uint32_t kQuickRequests = 5'000;

// The scenario `ref70`, at the same load, with less and less room for KV blocks: 40,000 blocks of
// 16 tokens are what it has.
struct Setting {
  std::string_view name;
  std::uint32_t blocks;
};
constexpr std::array kSettings{Setting{"slack", 40'000}, Setting{"middle", 16'000},
                               Setting{"kv_bound", 11'000}};

constexpr std::array kLimits{0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0};
constexpr std::array kQuickLimits{0.5, 0.9};
// No reading gets there.
constexpr double kNever = 1e9;

struct ValveArm {
  Arm arm;
  std::optional<double> limit{};  // of KV use, where that alone opens the valve
};

// The first is the valve that never opens; those with a limit follow it.
std::vector<ValveArm> valve_arms(bool quick) {
  const auto by_kv = [](double limit) {
    return SaturationLimits{.kv = limit, .queue = kNever, .prefill_tokens = 1e18};
  };
  ValveArm made;
  made.arm.policy.preset = "session_affinity";
  made.arm.label = "off";
  made.arm.saturation = by_kv(kNever);
  std::vector<ValveArm> arms = {made};
  for (const double limit : quick ? std::span<const double>(kQuickLimits) : kLimits) {
    char text[32];
    std::snprintf(text, sizeof text, "KV %.2f", limit);
    made.arm.label = text;
    made.arm.saturation = by_kv(limit);
    made.limit = limit;
    arms.push_back(made);
  }
  made.limit.reset();
  made.arm.label = "queue and prefill alone";
  made.arm.saturation = SaturationLimits{.kv = kNever};
  arms.push_back(made);
  made.arm.label = "as shipped";
  made.arm.saturation = SaturationLimits{};
  arms.push_back(made);
  ValveArm work;
  work.arm.policy.preset = "least_work";
  work.arm.label = "no valve; exchange 50 ms, exact index";
  work.arm.exchange = std::chrono::milliseconds(50);
  work.arm.index = IndexKind::kExact;
  arms.push_back(std::move(work));
  return arms;
}

std::vector<double> values(std::span<const RunResult> runs, double RunResult::* value) {
  std::vector<double> list;
  for (const RunResult& run : runs) list.push_back(run.*value);
  return list;
}

Estimate p99_ratio(std::span<const RunResult> above, std::span<const RunResult> below) {
  return measure_ratio(above, below, &RunResult::ttft_p99_s);
}

using Runs = std::span<const std::vector<RunResult>>;

// The valve's limit (or none) that is best by a measure, and those that cannot be told from it.
struct Optimum {
  std::size_t best = 0;
  std::vector<std::string> level;
};

// Whether the arm takes part: a limit on KV use alone, or none.
bool compared(std::span<const ValveArm> arms, std::size_t i) {
  return i == 0 || arms[i].limit.has_value();
}

Optimum p99_optimum(std::span<const ValveArm> arms, Runs runs) {
  Optimum optimum;
  double least = 0;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (!compared(arms, i)) continue;
    const double p99 = geometric_mean(values(runs[i], &RunResult::ttft_p99_s)).mean;
    if (i > 0 && p99 >= least) continue;
    least = p99;
    optimum.best = i;
  }
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (compared(arms, i) && i != optimum.best &&
        !(p99_ratio(runs[i], runs[optimum.best]).low > 1)) {
      optimum.level.push_back(arms[i].arm.label);
    }
  }
  return optimum;
}

Optimum hit_optimum(std::span<const ValveArm> arms, Runs runs) {
  Optimum optimum;
  double most = -1;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (!compared(arms, i)) continue;
    const double hit = arithmetic_mean(values(runs[i], &RunResult::prefix_hit_rate)).mean;
    if (hit <= most) continue;
    most = hit;
    optimum.best = i;
  }
  const std::vector<double> best = values(runs[optimum.best], &RunResult::prefix_hit_rate);
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (!compared(arms, i) || i == optimum.best) continue;
    std::vector<double> behind = values(runs[i], &RunResult::prefix_hit_rate);
    for (std::size_t seed = 0; seed < behind.size(); ++seed) behind[seed] -= best[seed];
    if (!(arithmetic_mean(behind).high < 0)) optimum.level.push_back(arms[i].arm.label);
  }
  return optimum;
}

std::string optimum_text(const Optimum& optimum, std::span<const ValveArm> arms) {
  std::size_t all = 0;
  for (std::size_t i = 0; i < arms.size(); ++i) all += compared(arms, i) ? 1 : 0;
  if (optimum.level.size() + 1 == all) return "any (none can be told from another)";
  std::string text = arms[optimum.best].arm.label;
  if (optimum.level.empty()) return text;
  text += " (not to be told from it: ";
  for (std::size_t i = 0; i < optimum.level.size(); ++i) {
    text += (i > 0 ? ", " : "") + optimum.level[i];
  }
  return text + ")";
}

std::string optimum_note(const Setting& setting, std::span<const ValveArm> arms, Runs runs) {
  return std::string(setting.name) + ": lowest p99 with " +
         optimum_text(p99_optimum(arms, runs), arms) + "; highest hit rate with " +
         optimum_text(hit_optimum(arms, runs), arms) + ".";
}

void add_rows(const Setting& setting, std::span<const ValveArm> arms, Runs runs, Report& report) {
  const std::size_t best = p99_optimum(arms, runs).best;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    Record row = arm_row(arms[i].arm, runs[i]);
    row.set("model", "valve").set("setting", setting.name);
    row.set("blocks", setting.blocks);
    row.set("valve_kv", arms[i].limit ? Value(*arms[i].limit) : Value());
    row.set("p99_over_off", p99_ratio(runs[i], runs[0]));
    row.set("p99_over_best", p99_ratio(runs[i], runs[best]));
    // Share of the measured requests that went by KV use because their home was full, whether
    // others had room or all were full.
    std::vector<double> opened;
    for (const RunResult& run : runs[i]) {
      opened.push_back((run.valve_openings + run.all_saturated) / run.requests);
    }
    const bool has_valve = arms[i].arm.policy.preset == "session_affinity";
    if (has_valve) {
      row.set("valve_share", within(arithmetic_mean(opened), 0, 1));
    } else {
      row.set_unknown("valve_share");
    }
    report.rows.push_back(std::move(row));
  }
}

}  // namespace

Result<Report> run_valve(const ExperimentOptions& options, const Registry& registry) {
  const Scenario base = scenario_for(options, "ref70", options.quick ? kQuickRequests : kRequests);
  std::vector<Scenario> scenarios;
  for (const Setting& setting : kSettings) {
    Scenario& scenario = scenarios.emplace_back(base);
    for (ReplicaSpec& replica : scenario.replicas) replica.engine.blocks = setting.blocks;
  }
  std::vector<ValveArm> arms = valve_arms(options.quick);
  for (ValveArm& one : arms) {
    one.arm = configured(std::move(one.arm), base);
    const Result<void> built = check_arms({&one.arm, 1}, registry);
    if (!built) return built.error();
  }

  const auto seeds = static_cast<std::size_t>(seeds_or(options, kSeeds, kQuickSeeds));
  const std::size_t rows = scenarios.size() * arms.size();
  const std::vector<RunResult> flat = run_parallel(
      rows * seeds, options.jobs,
      [&](std::size_t i) {
        const std::size_t row = i / seeds;
        return run(scenarios[row / arms.size()], arms[row % arms.size()].arm, registry,
                   options.first_seed + i % seeds);
      },
      [&](std::size_t done) {
        if (options.progress) options.progress(done, rows * seeds);
      });

  Report report;
  report.experiment = "valve";
  report.title = "Where to open the release valve of session affinity";
  report.scenario = scenario_record(base);
  report.scenario.set("first_seed", options.first_seed).set("quick", options.quick);
  report.seeds = static_cast<int>(seeds);
  const std::vector<Column> columns = {{"policy", "policy"},
                                       {"arm", "valve"},
                                       {"prefix_hit_rate", "hit %", 1, 100},
                                       {"ttft_p50_s", "p50 TTFT ms", 0, 1'000},
                                       {"ttft_p99_s", "p99 TTFT ms", 0, 1'000},
                                       {"p99_over_off", "p99 / off", 2},
                                       {"valve_share", "opened %", 1, 100},
                                       {"mean_kv", "KV %", 0, 100},
                                       {"preemptions", "preemptions", 0}};
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    std::vector<std::vector<RunResult>> runs(arms.size());
    std::vector<Arm> plain;
    for (std::size_t j = 0; j < arms.size(); ++j) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>((i * arms.size() + j) * seeds);
      runs[j].assign(begin, begin + static_cast<std::ptrdiff_t>(seeds));
      plain.push_back(arms[j].arm);
    }
    const Setting& setting = kSettings[i];
    add_rows(setting, arms, runs, report);
    report.tables.push_back(
        {std::string(setting.name) + ": " + std::to_string(setting.blocks) + " KV blocks a replica",
         columns, arms.size()});
    report.notes.push_back(optimum_note(setting, arms, runs));
    for (const std::string& note : arm_notes(scenarios[i], plain, runs)) {
      report.notes.push_back(std::string(setting.name) + ", " + note);
    }
  }
  return report;
}

}  // namespace pointsman::sim
