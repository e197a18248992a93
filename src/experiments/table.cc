#include "experiments/table.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"

namespace pointsman::sim {
namespace {

using std::chrono::milliseconds;
using Results = std::vector<RunResult>;

constexpr int kSeeds = 60;
constexpr int kQuickSeeds = 16;
constexpr std::uint32_t kQuickRequests = 5'000;
// The sweep over sharing shows factors, and needs fewer.
constexpr int kSharingSeeds = 20;
constexpr int kQuickSharingSeeds = 4;
constexpr double kSharings[] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
constexpr double kQuickSharings[] = {0, 0.3, 0.6, 0.9};
// About as many as round robin has in flight at the scenario's rate.
constexpr std::uint32_t kUsersPerReplica = 16;

// What the simulated table has to keep to.
constexpr double kFarthest = 0.35;
constexpr double kRootMeanSquare = 0.20;
constexpr double kFewestHits = 0.10;
constexpr double kMostHits = 0.13;
constexpr double kAffinityShareOfBound = 0.95;

// A row of the published table.
struct Published {
  double ttft_p50_s;
  double ttft_p99_s;
  double prefix_hit_rate;
  double throughput;  // over that of its first row; of what, it does not say
};

struct TableRow {
  Arm arm;
  std::optional<Published> published{};
  bool swept = false;  // over the share of follow-up turns as well
};

// The places of the published rows, which come first.
constexpr std::size_t kRoundRobin = 0;
constexpr std::size_t kLeastConnections = 1;
constexpr std::size_t kLiveKv = 2;
constexpr std::size_t kAffinity = 3;
constexpr std::size_t kSegregation = 4;
constexpr std::size_t kPublishedRows = 5;

// The cells that have to come near the published ones. "Throughput" is not among them, since it is
// not said what was counted.
struct Cell {
  std::string_view key;
  double Published::* published;
};
constexpr Cell kCells[] = {{"ttft_p50_s", &Published::ttft_p50_s},
                           {"ttft_p99_s", &Published::ttft_p99_s},
                           {"prefix_hit_rate", &Published::prefix_hit_rate}};

// Saturated by KV use alone, as the published release valve has it; and never.
constexpr SaturationLimits kKvAlone{.kv = 0.9, .queue = 1e9, .prefill_tokens = 1e12};
constexpr SaturationLimits kNoLimits{.kv = 1e9, .queue = 1e9, .prefill_tokens = 1e12};

std::vector<TableRow> table_rows() {
  std::vector<TableRow> rows;
  const auto add = [&rows](Arm arm, std::optional<Published> published, bool swept) {
    rows.push_back({.arm = std::move(arm), .published = published, .swept = swept});
  };
  add(preset_arm("round_robin", ""), Published{0.680, 8.4, 0.12, 1.00}, true);
  add(preset_arm("least_connections", ""), Published{0.520, 4.1, 0.12, 1.09}, false);
  Arm kv = preset_arm("least_kv", "live");
  kv.poll = Duration::zero();
  add(kv, Published{0.410, 2.2, 0.13, 1.18}, true);
  Arm affinity = preset_arm("session_affinity", "kv-valve");
  affinity.saturation = kKvAlone;
  add(affinity, Published{0.240, 2.4, 0.71, 1.42}, true);
  Arm pools = preset_arm("session_affinity", "segregation");
  pools.segregated = true;
  add(pools, Published{0.230, 1.1, 0.71, 1.51}, true);

  kv.label = "polled-1.5s";
  kv.poll = milliseconds(1'500);
  add(kv, {}, false);
  kv.label = "polled-3s";
  kv.poll = milliseconds(3'000);
  add(kv, {}, false);
  add(preset_arm("prefix_aware", ""), {}, true);
  add(preset_arm("weighted", ""), {}, false);
  Arm single = preset_arm("least_work", "one-balancer");
  single.balancers = 1;
  add(std::move(single), {}, false);
  add(preset_arm("least_work", ""), {}, true);
  Arm work = preset_arm("least_work", "exchange-50ms");
  work.exchange = milliseconds(50);
  add(work, {}, false);
  work.label = "exchange-50ms exact-index";
  work.index = IndexKind::kExact;
  add(work, {}, true);

  // What ships in the place of published rows, and what was published in the place of what ships.
  add(preset_arm("session_affinity", ""), {}, false);
  Arm counts = preset_arm("least_connections", "counts-only");
  counts.saturation = kNoLimits;
  add(counts, {}, false);
  Arm bare = preset_arm("least_kv", "bare-1.5s", {{"live", false}, {"tolerance", 0.0}});
  bare.poll = milliseconds(1'500);
  bare.saturation = kNoLimits;
  add(bare, {}, false);
  return rows;
}

double deviation(const Record& row, const Published& published, const Cell& cell) {
  return row.number(cell.key) / (published.*cell.published) - 1;
}

Record policy_row(const TableRow& entry, const Results& results, const Results& round_robin,
                  bool as_published) {
  Record row = arm_row(entry.arm, results);
  row.set("model", "policy").set("pools", pools_of(row));
  row.set("goodput_ratio", measure_ratio(results, round_robin, &RunResult::goodput_rps));
  row.set("closed_loop_ratio", measure_ratio(results, round_robin, &RunResult::closed_loop_rps));
  row.set("speed_ratio", measure_ratio(round_robin, results, &RunResult::e2e_mean_s));
  if (!as_published || !entry.published) return row;
  const Published& published = *entry.published;
  for (const Cell& cell : kCells) {
    row.set("published_" + std::string(cell.key), published.*cell.published);
    row.set(std::string(cell.key) + "_deviation", deviation(row, published, cell));
  }
  row.set("published_throughput", published.throughput);
  row.set("goodput_ratio_deviation", row.number("goodput_ratio") / published.throughput - 1);
  return row;
}

// The rest of a policy's row, for a table of its own on the screen.
Record throughput_row(const Record& policy) {
  Record row;
  row.set("policy", policy.text("policy")).set("arm", policy.text("arm"));
  row.set("model", "throughput");
  for (const std::string_view key : {"goodput_ratio", "closed_loop_ratio", "speed_ratio"}) {
    row.set(key, policy.estimate(key));
  }
  for (const std::string_view key :
       {"published_throughput", "goodput_ratio_deviation", "goodput_rps", "closed_loop_rps",
        "mean_kv", "busy_share", "cv_load", "valve_openings", "preemptions", "balancers",
        "poll_s"}) {
    if (const Value* value = policy.find(key)) row.set(key, *value);
  }
  return row.set("pools", policy.text("pools"));
}

Record check_row(std::string claim, const Estimate& value, double least, double most) {
  Record row;
  row.set("model", "check").set("claim", std::move(claim)).set("value", value);
  row.set("least", least).set("most", most);
  return row.set("holds", value.mean >= least && value.mean <= most);
}

std::vector<Record> check_rows(std::span<const TableRow> entries, std::span<const Results> results,
                               std::span<const Record> rows, bool as_published) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  std::vector<Record> checks;
  const auto falls = [&](std::size_t from, std::size_t to) {
    checks.push_back(
        check_row("p99 of " + arm_name(entries[from].arm) + " over " + arm_name(entries[to].arm),
                  measure_ratio(results[from], results[to], &RunResult::ttft_p99_s), 1, kAny));
  };
  falls(kRoundRobin, kLeastConnections);
  falls(kLeastConnections, kLiveKv);
  falls(kAffinity, kSegregation);
  std::vector<double> found;
  for (const RunResult& result : results[kAffinity]) {
    found.push_back(result.prefix_hit_rate / result.prefix_hit_bound);
  }
  checks.push_back(
      check_row("hit rate over its bound in tokens, " + arm_name(entries[kAffinity].arm),
                arithmetic_mean(found), kAffinityShareOfBound, 1));
  if (!as_published) return checks;
  for (const std::size_t place : {kRoundRobin, kLeastConnections, kLiveKv}) {
    checks.push_back(check_row("hit rate, " + arm_name(entries[place].arm),
                               rows[place].estimate("prefix_hit_rate"), kFewestHits, kMostHits));
  }
  double farthest = 0;
  double squares = 0;
  std::size_t cells = 0;
  for (std::size_t i = 0; i < kPublishedRows; ++i) {
    for (const Cell& cell : kCells) {
      const double off = deviation(rows[i], *entries[i].published, cell);
      if (std::abs(off) > std::abs(farthest)) farthest = off;
      squares += std::pow(std::log(1 + off), 2);
      ++cells;
    }
  }
  const double error = std::sqrt(squares / static_cast<double>(cells));
  checks.push_back(check_row("farthest of the TTFT and hit cells from the published, as a share",
                             {farthest, farthest, farthest}, -kFarthest, kFarthest));
  checks.push_back(check_row("root mean square of the logarithms of their ratios",
                             {error, error, error}, 0, kRootMeanSquare));
  return checks;
}

std::vector<Table> tables(std::size_t policies, std::size_t checks) {
  const Column policy{"policy", "policy"};
  const Column arm{"arm", "arm"};
  return {
      {"Beside the published cells (and the deviation from them in per cent)",
       {policy,
        arm,
        {"ttft_p50_s", "p50 TTFT, ms", 0, 1'000},
        {"published_ttft_p50_s", "publ.", 0, 1'000},
        {"ttft_p50_s_deviation", "dev.", 0, 100},
        {"ttft_p99_s", "p99 TTFT, ms", 0, 1'000},
        {"published_ttft_p99_s", "publ.", 0, 1'000},
        {"ttft_p99_s_deviation", "dev.", 0, 100},
        {"prefix_hit_rate", "hit, %", 1, 100},
        {"published_prefix_hit_rate", "publ.", 0, 100},
        {"prefix_hit_rate_deviation", "dev.", 0, 100},
        {"ttft_p99_short_s", "p99 short, ms", 0, 1'000}},
       policies},
      {"Throughput over that of round robin, in three readings",
       {policy,
        arm,
        {"goodput_ratio", "goodput", 2},
        {"published_throughput", "publ.", 2},
        {"goodput_ratio_deviation", "dev., %", 0, 100},
        {"closed_loop_ratio", "closed loop", 2},
        {"speed_ratio", "1 / end-to-end time", 2},
        {"mean_kv", "KV, %", 0, 100},
        {"busy_share", "busy, %", 0, 100},
        {"valve_openings", "valve", 0},
        {"preemptions", "preempted", 1},
        {"poll_s", "poll, s", 1},
        {"pools", "pools"}},
       policies},
      {"What must hold",
       {{"claim", "claim"},
        {"value", "value", 3},
        {"least", "least", 2},
        {"most", "most", 2},
        {"holds", "holds"}},
       checks},
      {"Over the share of requests that are follow-up turns, at the same rate of requests",
       {{"sharing", "sharing", 1},
        policy,
        arm,
        {"prefix_hit_rate", "hit, %", 1, 100},
        {"prefix_hit_bound", "bound, %", 1, 100},
        {"ttft_p50_s", "p50 TTFT, ms", 0, 1'000},
        {"ttft_p99_s", "p99 TTFT, ms", 0, 1'000},
        {"over_capacity", "above capacity, % of runs", 0, 100}}},
  };
}

Scenario table_scenario(const ExperimentOptions& options) {
  Scenario scenario = options.quick ? scenario_for(options, "ref70", kQuickRequests)
                                    : scenario_for(options, "ref70");
  scenario.measure.closed_loop_users = kUsersPerReplica;
  return scenario;
}

}  // namespace

Result<Report> run_table(const ExperimentOptions& options, const Registry& registry) {
  const Scenario scenario = table_scenario(options);
  if (scenario.replicas.size() < 3) {
    return Error{ErrorKind::kClient,
                 "--replicas: the table's pools need at least three replicas, and its claims "
                 "several to choose from"};
  }
  const std::vector<TableRow> entries = table_rows();
  std::vector<Arm> arms;
  std::vector<Arm> swept;
  for (const TableRow& entry : entries) {
    arms.push_back(configured(entry.arm, scenario));
    if (entry.swept) swept.push_back(arms.back());
  }
  if (const Result<void> built = check_arms(arms, registry); !built) return built.error();
  // With another fleet or workload the published figures are about something else.
  const bool as_published = !options.replicas && !options.sharing;
  const std::span<const double> sharings =
      options.quick ? std::span<const double>(kQuickSharings) : std::span<const double>(kSharings);

  CompareOptions compare;
  compare.seeds = seeds_or(options, kSeeds, kQuickSeeds);
  compare.first_seed = options.first_seed;
  compare.jobs = options.jobs;
  CompareOptions sweep = compare;
  sweep.seeds = std::min(compare.seeds, options.quick ? kQuickSharingSeeds : kSharingSeeds);
  const std::size_t table_runs = arms.size() * static_cast<std::size_t>(compare.seeds);
  const std::size_t level_runs = swept.size() * static_cast<std::size_t>(sweep.seeds);
  const std::size_t all_runs = table_runs + sharings.size() * level_runs;
  const auto progress_from = [&](std::size_t before) {
    return [&options, before, all_runs](std::size_t ended, std::size_t) {
      if (options.progress) options.progress(before + ended, all_runs);
    };
  };

  Report report;
  report.experiment = "table";
  report.seeds = compare.seeds;
  report.scenario = scenario_record(scenario);
  report.title = "The published table on " + scenario.name + ": " +
                 counted(scenario.replicas.size(), "replica") + ", " +
                 counted(scenario.balancers.count, "balancer") + ", " +
                 counted(static_cast<std::uint64_t>(compare.seeds), "seed");

  compare.progress = progress_from(0);
  const std::vector<Results> results = run_arms(scenario, arms, registry, compare);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    report.rows.push_back(policy_row(entries[i], results[i], results[kRoundRobin], as_published));
  }
  std::vector<Record> checks = check_rows(entries, results, report.rows, as_published);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    report.rows.push_back(throughput_row(report.rows[i]));
  }
  report.tables = tables(entries.size(), checks.size());
  for (Record& check : checks) report.rows.push_back(std::move(check));

  for (std::size_t level = 0; level < sharings.size(); ++level) {
    Scenario shared = scenario;
    shared.measure.closed_loop_users = 0;
    set_sharing(shared, sharings[level]);
    sweep.progress = progress_from(table_runs + level * level_runs);
    const std::vector<Results> runs = run_arms(shared, swept, registry, sweep);
    for (std::size_t i = 0; i < swept.size(); ++i) {
      Record row = arm_row(swept[i], runs[i]);
      row.set("model", "sharing").set("sharing", sharings[level]);
      row.set("seeds", sweep.seeds);
      report.rows.push_back(std::move(row));
    }
  }

  report.notes = {
      "Times: geometric means over the seeds; the rest arithmetic; ratios paired by seed; in "
      "brackets 95 % intervals. Hit rate: cached tokens at first admission over prompt tokens.",
      "Goodput: requests per second with a time to first token of at most 0.5 s. Closed loop: "
      "completions per second with 16 users per replica.",
      "The sweep has " + counted(static_cast<std::uint64_t>(sweep.seeds), "seed") + " a row."};
  if (as_published) {
    report.notes.emplace_back(
        "Not to be had together in this model: a hit rate above the bound in tokens; lower p50 "
        "from balancing alone beside room for segregation; the published steps of throughput. "
        "See docs/experiments/table.md.");
  }
  for (std::string& note : arm_notes(scenario, arms, results))
    report.notes.push_back(std::move(note));
  return report;
}

}  // namespace pointsman::sim
