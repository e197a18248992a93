#include "experiments/segregation.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"

namespace pointsman::sim {
namespace {

using Results = std::vector<RunResult>;

constexpr int kSeeds = 20;
constexpr int kQuickSeeds = 6;
constexpr std::uint32_t kQuickRequests = 5'000;

// Shares of conversations that begin with a document; ref70 has 0.0038.
constexpr double kShares[] = {0, 0.001, 0.002, 0.0038, 0.0075, 0.015, 0.03, 0.06};
constexpr double kQuickShares[] = {0, 0.0075, 0.03};
// Those at which pools of several sizes are compared.
constexpr double kPoolShares[] = {0.0038, 0.015};
constexpr double kQuickPoolShares[] = {0.0038};
// Requests per second of eight replicas; ref70 has 7.15.
constexpr double kRates[] = {5, 7.15, 9, 11, 13};
constexpr double kQuickRates[] = {7.15, 13};
// What clients state as their limit of an ordinary answer: as in ref70, and as a client does that
// always allows much.
constexpr std::uint32_t kLimits[] = {4'000, 16'384};

// Replicas set aside; none: no pools.
struct Pools {
  std::uint32_t long_context = 0;
  std::uint32_t long_generation = 0;

  [[nodiscard]] std::uint32_t total() const { return long_context + long_generation; }
};
constexpr Pools kUsualPools = {1, 1};
constexpr Pools kPools[] = {{0, 0}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {3, 1}};
constexpr Pools kQuickPools[] = {{0, 0}, {1, 1}, {3, 1}};

template <typename T, std::size_t kFull, std::size_t kQuick>
std::span<const T> some(bool quick, const T (&full)[kFull], const T (&few)[kQuick]) {
  return quick ? std::span<const T>(few) : std::span<const T>(full);
}

void set_pools(Scenario& scenario, const Pools& pools) {
  std::vector<ReplicaSpec>& replicas = scenario.replicas;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const std::size_t from_end = replicas.size() - i;
    replicas[i].pool = from_end <= pools.long_generation ? PoolPurpose::kLongGeneration
                       : from_end <= pools.total()       ? PoolPurpose::kLongContext
                                                         : PoolPurpose::kGeneral;
  }
}

std::string pools_text(const Scenario& scenario, const Pools& pools) {
  char text[48];
  std::snprintf(text, sizeof text, "%zu/%u/%u", scenario.replicas.size() - pools.total(),
                pools.long_context, pools.long_generation);
  return text;
}

// Arms under one scenario, and what their rows are compared with: an arm of this block or of an
// earlier one.
struct Block {
  Scenario scenario;
  Record labels;  // that tell its rows from others
  std::vector<Arm> arms;
  std::vector<std::pair<std::size_t, std::size_t>> references;  // (block, arm) of each arm
};

Arm affinity(bool pools, std::string_view label) {
  Arm arm = preset_arm("session_affinity", label);
  arm.segregated = pools;
  return arm;
}

// As it ships, with several balancers that tell each other their charges and follow the caches.
Arm least_work(bool pools, std::string_view label) {
  Arm arm = preset_arm("least_work", label);
  arm.exchange = std::chrono::milliseconds(50);
  arm.index = IndexKind::kExact;
  arm.segregated = pools;
  return arm;
}

// The four that every part but that of pool sizes compares; the first is the reference.
std::vector<Arm> usual_arms(const Scenario& scenario) {
  Arm valve = affinity(false, "no pools, valve on KV alone");
  valve.saturation = SaturationLimits{.kv = 0.9, .queue = 1e9, .prefill_tokens = 1e12};
  return {affinity(false, "no pools"), std::move(valve),
          affinity(true, "pools " + pools_text(scenario, kUsualPools)),
          least_work(false, "no pools, exchange, exact index")};
}

class Plan {
 public:
  Plan(const ExperimentOptions& options, Scenario base)
      : quick_(options.quick), base_(std::move(base)) {}

  std::vector<Block> take() {
    for (const double share : some(quick_, kShares, kQuickShares)) {
      Scenario scenario = base_;
      scenario.workload.document_share = share;
      Block& block = add(std::move(scenario), "share");
      block.labels.set("document_share", share);
      block.arms.push_back(preset_arm("least_work", "no pools, each balancer alone"));
      block.references.emplace_back(blocks_.size() - 1, 0);
      Arm single = preset_arm("least_work", "no pools, one balancer");
      single.balancers = 1;
      block.arms.push_back(std::move(single));
      block.references.emplace_back(blocks_.size() - 1, 0);
    }
    for (const double share : some(quick_, kPoolShares, kQuickPoolShares)) add_pools(share);
    for (const double rate : some(quick_, kRates, kQuickRates)) {
      Scenario scenario = base_;
      scenario.arrivals.rate = rate * static_cast<double>(base_.replicas.size()) / 8;
      add(std::move(scenario), "rate").labels.set("rate_rps", rate);
    }
    for (const std::uint32_t limit : kLimits) {
      Scenario scenario = base_;
      scenario.workload.max_tokens = limit;
      add(std::move(scenario), "limits").labels.set("stated_limit_tokens", limit);
    }
    return std::move(blocks_);
  }

 private:
  Block& add(Scenario scenario, std::string_view model) {
    set_pools(scenario, kUsualPools);
    Block block{.scenario = std::move(scenario), .labels = {}, .arms = {}, .references = {}};
    block.labels.set("model", model);
    block.arms = usual_arms(block.scenario);
    block.references.assign(block.arms.size(), {blocks_.size(), 0});
    return blocks_.emplace_back(std::move(block));
  }

  // Each size against no pools under the same policy.
  void add_pools(double share) {
    const std::size_t first = blocks_.size();
    for (const Pools& pools : some(quick_, kPools, kQuickPools)) {
      if (pools.total() >= base_.replicas.size()) continue;
      Block block{.scenario = base_, .labels = {}, .arms = {}, .references = {}};
      block.scenario.workload.document_share = share;
      set_pools(block.scenario, pools);
      block.labels.set("model", "pools").set("document_share", share);
      const std::string label =
          pools.total() > 0 ? "pools " + pools_text(base_, pools) : std::string("no pools");
      block.arms = {affinity(pools.total() > 0, label), least_work(pools.total() > 0, label)};
      block.references = {{first, 0}, {first, 1}};
      blocks_.push_back(std::move(block));
    }
  }

  bool quick_;
  Scenario base_;
  std::vector<Block> blocks_;
};

// Nothing where no pair of runs has both.
void set_ratio(Record& row, std::string_view key, const Results& above, const Results& below,
               double RunResult::* value) {
  const Estimate ratio = measure_ratio(above, below, value);
  if (ratio.mean > 0) {
    row.set(key, ratio);
  } else {
    row.set_unknown(key);
  }
}

Record block_row(const Block& block, std::size_t arm, const Results& results,
                 const Results& reference) {
  Record row = arm_row(block.arms[arm], results);
  for (const Entry& label : block.labels.entries()) row.set(label.key, label.value);
  set_ratio(row, "short_p99_gain", reference, results, &RunResult::ttft_p99_short_s);
  set_ratio(row, "long_p99_price", results, reference, &RunResult::ttft_p99_long_s);
  return row;
}

std::vector<Column> columns(Column label) {
  return {std::move(label),
          {"policy", "policy"},
          {"arm", "arm"},
          {"ttft_p99_short_s", "p99 short, s", 2},
          {"short_p99_gain", "gain", 2},
          {"ttft_p50_long_s", "p50 long, s", 2},
          {"ttft_p99_long_s", "p99 long, s", 1},
          {"long_p99_price", "price", 2},
          {"ttft_p50_s", "p50 of all, s", 3},
          {"ttft_p99_s", "p99 of all, s", 2},
          {"over_capacity", "a pool above capacity, % of runs", 0, 100}};
}

// A table for each run of rows with the same model.
std::vector<Table> tables(std::span<const Record> rows) {
  struct Shown {
    std::string_view model;
    std::string_view title;
    Column label;
  };
  const Shown shown[] = {
      {"share",
       "Over the share of conversations that begin with a document of 32k to 110k tokens",
       {"document_share", "documents, %", 2, 100}},
      {"pools",
       "Over the sizes of the pools: general / long context / long generation",
       {"document_share", "documents, %", 2, 100}},
      {"rate", "Over the load, requests per second of eight replicas", {"rate_rps", "rate", 2}},
      {"limits",
       "Over the limit that clients state for ordinary answers",
       {"stated_limit_tokens", "limit, tokens"}},
  };
  std::vector<Table> list;
  for (const Shown& one : shown) {
    const auto count = std::count_if(rows.begin(), rows.end(), [&](const Record& row) {
      return row.text("model") == one.model;
    });
    list.push_back({.title = std::string(one.title),
                    .columns = columns(one.label),
                    .rows = static_cast<std::size_t>(count)});
  }
  return list;
}

}  // namespace

Result<Report> run_segregation(const ExperimentOptions& options, const Registry& registry) {
  Scenario base = options.quick ? scenario_for(options, "ref70", kQuickRequests)
                                : scenario_for(options, "ref70");
  if (base.replicas.size() <= kUsualPools.total()) {
    return Error{ErrorKind::kClient, "--replicas: pools need at least three replicas"};
  }
  std::vector<Block> blocks = Plan(options, base).take();
  std::size_t all_arms = 0;
  for (Block& block : blocks) {
    for (Arm& arm : block.arms) arm = configured(std::move(arm), block.scenario);
    all_arms += block.arms.size();
    if (const Result<void> built = check_arms(block.arms, registry); !built) return built.error();
  }

  CompareOptions compare;
  compare.seeds = seeds_or(options, kSeeds, kQuickSeeds);
  compare.first_seed = options.first_seed;
  compare.jobs = options.jobs;
  const auto seeds = static_cast<std::size_t>(compare.seeds);
  std::size_t ended_before = 0;
  compare.progress = [&](std::size_t ended, std::size_t) {
    if (options.progress) options.progress(ended_before + ended, all_arms * seeds);
  };

  Report report;
  report.experiment = "segregation";
  report.title = "Pools for long requests on " + base.name + ": " +
                 counted(base.replicas.size(), "replica") + ", " +
                 counted(base.balancers.count, "balancer") + ", " + counted(seeds, "seed");
  report.scenario = scenario_record(base);
  report.seeds = compare.seeds;
  std::vector<std::vector<Results>> results;  // by block and arm
  for (const Block& block : blocks) {
    results.push_back(run_arms(block.scenario, block.arms, registry, compare));
    ended_before += block.arms.size() * seeds;
    for (std::size_t i = 0; i < block.arms.size(); ++i) {
      const auto [of_block, of_arm] = block.references[i];
      report.rows.push_back(block_row(block, i, results.back()[i], results[of_block][of_arm]));
    }
  }
  report.tables = tables(report.rows);
  report.notes = {
      "Short: all but prompts above 32,000 tokens and stated limits above 4,000, whether there are "
      "pools or not. Times to first token: geometric means over the seeds, 95 % intervals.",
      "Gain: p99 of the short requests under session_affinity without pools (of the pool sizes: "
      "under the same policy) over this row's. Price: this row's p99 of the long ones over theirs.",
      "exchange: balancers tell each other their charges every 50 ms; exact index: as the caches "
      "are."};
  return report;
}

}  // namespace pointsman::sim
