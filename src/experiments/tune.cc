#include "experiments/tune.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/run_parallel.h"
#include "experiments/tuned_config.h"
#include "sim/cluster.h"
#include "sim/run_result.h"
#include "sim/trace_reader.h"

namespace pointsman::sim {
namespace {

// Between the seeds of the search and those of the final runs.
constexpr std::uint64_t kFinalOffset = 1'000'000;
constexpr int kPasses = 2;
// The shipped policy, what everything is compared with.
constexpr std::string_view kDefault = "least_work";
// Candidates that are kept after the first and after the second round of halving.
constexpr std::size_t kAfterFirst = 6;
constexpr std::size_t kFinalists = 2;
// Gains below this are not worth a line in a configuration.
constexpr double kLeastGain = 0.99;
// Requests in each half of a trace.
constexpr std::uint64_t kFewestTraced = 100;

// Values that an option of a preset is tried with.
struct OptionTries {
  std::string_view name;
  std::vector<double> values;
};
const std::vector<OptionTries>& option_tries() {
  static const std::vector<OptionTries> tries = {
      {"private_weight", {1, 2, 5}},
      {"decode_tokens", {0, 16, 256, 1024}},
      {"base_tokens", {100, 1'600}},
      {"kv_weight", {0, 50'000, 800'000}},
      {"kv_knee", {0.8, 0.9}},
      {"shared_weight", {0.5, 2}},
      {"choices", {0, 2, 3, 4}},
      {"balance", {1.1, 1.5, 2}},
      {"prefix_hit_weight", {0.5, 1, 4}},
      {"kv_headroom_weight", {0.5, 2}},
      {"queue_room_weight", {0.5, 2, 4}},
      {"depth", {4, 8, 32}},
      {"tokens", {256, 1'024, 4'096}},
      {"decay_s", {3, 30}},
  };
  return tries;
}

// What is changed at once.
using Change = std::function<void(TunedConfig&)>;
struct Coordinate {
  std::string name;
  std::vector<Change> changes;
};

// An option with its default is left out. One that is there keeps its place, so that equal
// configurations are written alike.
void set_option(PolicySpec& policy, const OptionInfo& option, double value) {
  const auto held = std::find_if(policy.options.begin(), policy.options.end(),
                                 [&](const auto& entry) { return entry.first == option.name; });
  if (option.default_value == OptionValue(value)) {
    if (held != policy.options.end()) policy.options.erase(held);
  } else if (held != policy.options.end()) {
    held->second = value;
  } else {
    policy.options.emplace_back(option.name, value);
  }
}

// The preset as it is to be configured before that scenario.
TunedConfig shipped_config(std::string_view preset, const Scenario& scenario) {
  TunedConfig config;
  config.policy = configured(preset_arm(preset, ""), scenario).policy;
  return config;
}

Coordinate option_coordinate(const OptionInfo& option, std::vector<double> values) {
  Coordinate coordinate{option.name, {}};
  values.push_back(std::get<double>(option.default_value));
  for (const double value : values) {
    if (value < option.low || value > option.high) continue;
    coordinate.changes.emplace_back(
        [option, value](TunedConfig& config) { set_option(config.policy, option, value); });
  }
  return coordinate;
}

// All that may be changed of a configuration with that preset.
std::vector<Coordinate> coordinates(const PresetInfo& preset, const Scenario& scenario) {
  std::vector<Coordinate> list;
  if (scenario.balancers.count > 1) {
    for (const OptionInfo& option : preset.options) {
      if (option.name == "routers") {
        list.push_back(option_coordinate(option, {static_cast<double>(scenario.balancers.count)}));
      } else if (option.name == "home_trust") {
        list.push_back(option_coordinate(option, {0}));
      }
    }
  }
  for (const OptionTries& tries : option_tries()) {
    for (const OptionInfo& option : preset.options) {
      if (option.name == tries.name) list.push_back(option_coordinate(option, tries.values));
    }
  }
  const auto limit = [&list](std::string_view name, double SaturationLimits::* member,
                             std::initializer_list<double> values) {
    Coordinate& coordinate = list.emplace_back(Coordinate{std::string(name), {}});
    for (const double value : values) {
      coordinate.changes.emplace_back(
          [member, value](TunedConfig& config) { config.saturation.*member = value; });
    }
  };
  limit("saturation.prefill_tokens", &SaturationLimits::prefill_tokens,
        {8'192, 16'384, 32'768, 65'536, 262'144});
  limit("saturation.queue", &SaturationLimits::queue, {4, 8, 16, 32});
  limit("saturation.kv", &SaturationLimits::kv, {0.7, 0.8, 0.9, 0.97});
  Coordinate& pools = list.emplace_back(Coordinate{"pools", {}});
  for (const PoolSizes& sizes : {PoolSizes{0, 0}, PoolSizes{1, 0}, PoolSizes{0, 1}, PoolSizes{1, 1},
                                 PoolSizes{2, 0}, PoolSizes{2, 1}, PoolSizes{3, 1}}) {
    if (2 * sizes.total() > scenario.replicas.size()) continue;
    pools.changes.emplace_back([sizes](TunedConfig& config) { config.pools = sizes; });
  }
  return list;
}

class Search {
 public:
  Search(const Scenario& scenario, const Registry& registry, const TuneOptions& options,
         const Measure& measure)
      : scenario_(scenario), registry_(registry), options_(options), measure_(measure) {}

  // The results of a configuration on the first `seeds` seeds, run where they are not known yet.
  const std::vector<RunResult>& results(const TunedConfig& config, std::size_t seeds) {
    run_all({config}, seeds);
    return known_[key(config)];
  }

  // Runs what is missing of all of them at once, so that every core has something to do.
  void run_all(const std::vector<TunedConfig>& configs, std::size_t seeds) {
    struct Task {
      const TunedConfig* config;
      std::string key;
      std::uint64_t seed;
    };
    std::vector<Task> tasks;
    std::map<std::string, std::size_t> planned;
    for (const TunedConfig& config : configs) {
      std::string name = key(config);
      std::size_t& have = planned.try_emplace(name, known_[name].size()).first->second;
      for (; have < seeds; ++have) {
        tasks.push_back({&config, name, options_.first_seed + have});
      }
    }
    const std::vector<RunResult> fresh = run_parallel(
        tasks.size(), options_.jobs,
        [&](std::size_t i) { return run_one(*tasks[i].config, tasks[i].seed); },
        [&](std::size_t done) { progress(ran_ + done); });
    for (std::size_t i = 0; i < tasks.size(); ++i) known_[tasks[i].key].push_back(fresh[i]);
    ran_ += tasks.size();
  }

  [[nodiscard]] RunResult run_one(const TunedConfig& config, std::uint64_t seed) const {
    return run(with_pools(scenario_, config.pools), arm_of(config), registry_, seed);
  }

  // The measure of each seed.
  [[nodiscard]] std::vector<double> values(const std::vector<RunResult>& runs,
                                           std::size_t seeds) const {
    std::vector<double> list;
    for (std::size_t i = 0; i < std::min(seeds, runs.size()); ++i) {
      const double value = runs[i].*measure_.value;
      list.push_back(std::isfinite(value) ? value : std::numeric_limits<double>::max());
    }
    return list;
  }
  [[nodiscard]] double score(const TunedConfig& config, std::size_t seeds) {
    return geometric_mean(values(results(config, seeds), seeds)).mean;
  }

  // The better part of the candidates, best first.
  std::vector<TunedConfig> best_of(std::vector<TunedConfig> candidates, std::size_t seeds,
                                   std::size_t keep) {
    run_all(candidates, seeds);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      order.emplace_back(score(candidates[i], seeds), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<TunedConfig> kept;
    for (std::size_t i = 0; i < std::min(keep, order.size()); ++i) {
      kept.push_back(candidates[order[i].second]);
    }
    return kept;
  }

  // One key after the other, as long as one of them helps.
  TunedConfig descend(TunedConfig config, std::size_t seeds) {
    const PresetInfo* const preset = registry_.preset(config.policy.preset);
    for (int pass = 0; preset != nullptr && pass < (options_.quick ? 1 : kPasses); ++pass) {
      bool changed = false;
      for (const Coordinate& coordinate : coordinates(*preset, scenario_)) {
        changed = improve(config, coordinate, seeds) || changed;
      }
      if (!changed) break;
    }
    return config;
  }

  void plan(std::size_t runs) { planned_ += runs; }
  [[nodiscard]] std::size_t ran() const { return ran_; }
  [[nodiscard]] std::size_t tried() const { return known_.size(); }
  void progress(std::size_t done) const {
    if (options_.progress) options_.progress(done, std::max(planned_, done));
  }

 private:
  static std::string key(const TunedConfig& config) {
    return tuned_config_yaml(config, Scenario{}, {}) + pools_text(config.pools, kMaxReplicas);
  }

  bool improve(TunedConfig& config, const Coordinate& coordinate, std::size_t seeds) {
    std::vector<TunedConfig> tries;
    for (const Change& change : coordinate.changes) {
      TunedConfig one = config;
      change(one);
      tries.push_back(std::move(one));
    }
    run_all(tries, seeds);
    const std::vector<double> now = values(results(config, seeds), seeds);
    const TunedConfig* best = nullptr;
    double least = kLeastGain;
    for (const TunedConfig& one : tries) {
      const Estimate ratio = paired_ratio(values(results(one, seeds), seeds), now);
      if (ratio.mean >= least || (seeds > 1 && ratio.high >= 1)) continue;
      least = ratio.mean;
      best = &one;
    }
    if (best == nullptr) return false;
    config = *best;
    return true;
  }

  const Scenario& scenario_;
  const Registry& registry_;
  const TuneOptions& options_;
  const Measure& measure_;
  std::map<std::string, std::vector<RunResult>> known_;  // of the search's seeds, by configuration
  std::size_t ran_ = 0;
  std::size_t planned_ = 0;
};

std::vector<TunedConfig> first_candidates(const Registry& registry, const Scenario& scenario) {
  std::vector<TunedConfig> list;
  for (const PresetInfo& preset : registry.presets()) {
    if (preset.stability != Stability::kStable) continue;
    TunedConfig config = shipped_config(preset.name, scenario);
    list.push_back(config);
    const bool with_pools = preset.name == kDefault || preset.name == "session_affinity";
    if (with_pools && scenario.replicas.size() >= 4) {
      config.pools = {1, 1};
      list.push_back(config);
    }
  }
  return list;
}

// Of the finalists and the shipped policy, each preset once: what is searched around.
std::vector<TunedConfig> starting_points(const std::vector<TunedConfig>& best,
                                         const Scenario& scenario) {
  std::vector<TunedConfig> points;
  const auto has = [&points](std::string_view preset) {
    return std::any_of(points.begin(), points.end(), [preset](const TunedConfig& config) {
      return config.policy.preset == preset;
    });
  };
  for (const TunedConfig& config : best) {
    if (points.size() < kFinalists && !has(config.policy.preset)) points.push_back(config);
  }
  if (!has(kDefault)) points.push_back(shipped_config(kDefault, scenario));
  return points;
}

std::size_t most_runs(const std::vector<TunedConfig>& points, const Registry& registry,
                      const Scenario& scenario, const TuneOptions& options) {
  std::size_t runs = 0;
  for (const TunedConfig& point : points) {
    const PresetInfo* const preset = registry.preset(point.policy.preset);
    for (const Coordinate& coordinate : coordinates(*preset, scenario)) {
      runs += coordinate.changes.size();
    }
  }
  return runs * static_cast<std::size_t>(options.search_seeds);
}

// Of a trace the search gets the first half, and the final runs the other.
Result<std::pair<Scenario, Scenario>> halves(const Scenario& scenario) {
  std::pair<Scenario, Scenario> both{scenario, scenario};
  const ArrivalsSpec& arrivals = scenario.arrivals;
  if (arrivals.kind != ArrivalKind::kTrace) return both;
  Result<TraceReader> reader = TraceReader::open(arrivals.trace);
  if (!reader) return reader.error();
  const std::uint64_t most = arrivals.trace_requests > 0
                                 ? std::uint64_t{arrivals.trace_skip} + arrivals.trace_requests
                                 : std::numeric_limits<std::uint32_t>::max();
  std::uint64_t count = 0;
  TraceRequest request;
  for (; count < most; ++count) {
    const Result<bool> more = reader->next(request);
    if (!more) return more.error();
    if (!*more) break;
  }
  const std::uint64_t usable = count > arrivals.trace_skip ? count - arrivals.trace_skip : 0;
  const std::uint64_t half = usable / 2;
  if (half < kFewestTraced) {
    return Error{ErrorKind::kClient, arrivals.trace + ": has " + counted(usable, "request") +
                                         " to replay, too few to search with one half and "
                                         "to measure with the other: " +
                                         std::to_string(2 * kFewestTraced) + " are needed"};
  }
  both.first.arrivals.trace_requests = static_cast<std::uint32_t>(half);
  both.second.arrivals.trace_skip += static_cast<std::uint32_t>(half);
  both.second.arrivals.trace_requests = static_cast<std::uint32_t>(half);
  return both;
}

std::string per_cent(const Estimate& ratio) {
  char text[96];
  if (!std::isfinite(ratio.low)) {
    std::snprintf(text, sizeof text, "%.1f %%", (1 - ratio.mean) * 100);
    return text;
  }
  std::snprintf(text, sizeof text, "%.1f %% [%.1f, %.1f]", (1 - ratio.mean) * 100,
                (1 - ratio.high) * 100, (1 - ratio.low) * 100);
  return text;
}

Record row_of(const TunedConfig& config, std::string_view label, const Scenario& scenario,
              const std::vector<RunResult>& runs, const std::vector<RunResult>& shipped,
              const Measure& measure) {
  Arm arm = arm_of(config);
  arm.label = label;
  Record row = arm_row(arm, runs);
  row.set("model", "tune").set("pools", pools_text(config.pools, scenario.replicas.size()));
  row.set("ratio", measure_ratio(runs, shipped, measure.value));
  row.set("ttft_p50_ratio", measure_ratio(runs, shipped, &RunResult::ttft_p50_s));
  row.set("e2e_mean_ratio", measure_ratio(runs, shipped, &RunResult::e2e_mean_s));
  return row;
}

}  // namespace

Result<Tuning> run_tune(const Scenario& given, const TuneOptions& options,
                        const Registry& registry) {
  const Measure* const measure = find_measure(options.measure);
  if (measure == nullptr || measure->mean != MeasureMean::kGeometric) {
    std::string known;
    for (const Measure& one : measures()) {
      if (one.mean != MeasureMean::kGeometric) continue;
      known.append(known.empty() ? "" : ", ").append(one.key);
    }
    return Error{
        ErrorKind::kClient,
        "'" + options.measure + "' is not a time that can be tuned (known: " + known + ")"};
  }
  if (registry.preset(kDefault) == nullptr) {
    return Error{ErrorKind::kClient, "no policy least_work to compare with"};
  }
  // The scenario's own limits and pools are those of somebody's router, which is what is looked
  // for here.
  Scenario scenario = given;
  scenario.segregated = false;
  scenario.measure.closed_loop_users = 0;

  const Result<std::pair<Scenario, Scenario>> parts = halves(scenario);
  if (!parts) return parts.error();
  const auto& [searched_scenario, final_scenario] = *parts;

  Search search(searched_scenario, registry, options, *measure);
  const auto seeds = static_cast<std::size_t>(options.search_seeds);
  const auto final_seeds = static_cast<std::size_t>(options.final_seeds);
  std::vector<TunedConfig> candidates = first_candidates(registry, scenario);
  const std::size_t first_seeds = (seeds + 2) / 3;
  search.plan(candidates.size() * first_seeds + kAfterFirst * (seeds - first_seeds) +
              2 * final_seeds);
  search.plan(most_runs(starting_points({}, scenario), registry, scenario, options));
  candidates = search.best_of(std::move(candidates), first_seeds, kAfterFirst);
  candidates = search.best_of(std::move(candidates), seeds, kAfterFirst);

  const TunedConfig shipped = shipped_config(kDefault, scenario);
  std::vector<TunedConfig> ends{shipped};
  for (const TunedConfig& point : starting_points(candidates, scenario)) {
    if (point.policy.preset != kDefault) {
      search.plan(most_runs({point}, registry, scenario, options));
    }
    ends.push_back(search.descend(point, seeds));
  }
  TunedConfig best = search.best_of(std::move(ends), seeds, 1).front();
  const Estimate on_search = paired_ratio(search.values(search.results(best, seeds), seeds),
                                          search.values(search.results(shipped, seeds), seeds));

  // Seeds that nothing was chosen by.
  const std::size_t searched = search.ran();
  const std::vector<RunResult> flat = run_parallel(
      2 * final_seeds, options.jobs,
      [&](std::size_t i) {
        const TunedConfig& config = i % 2 == 0 ? shipped : best;
        return run(with_pools(final_scenario, config.pools), arm_of(config), registry,
                   options.first_seed + kFinalOffset + i / 2);
      },
      [&](std::size_t done) { search.progress(searched + done); });
  std::vector<RunResult> shipped_runs;
  std::vector<RunResult> best_runs;
  for (std::size_t i = 0; i < flat.size(); ++i) {
    (i % 2 == 0 ? shipped_runs : best_runs).push_back(flat[i]);
  }
  const Estimate ratio = measure_ratio(best_runs, shipped_runs, measure->value);
  const bool gains = ratio.high < 1;

  Tuning tuning;
  Report& report = tuning.report;
  report.experiment = "tune";
  report.title = scenario.name + ": the least " + std::string(measure->name) + ", " +
                 counted(search.tried(), "configuration") + ", " + counted(searched, "run") +
                 " of the search, " + counted(final_seeds, "other seed") + " at the end";
  report.scenario = scenario_record(scenario);
  report.scenario.set("measure", options.measure)
      .set("search_seeds", options.search_seeds)
      .set("first_seed", options.first_seed)
      .set("first_final_seed", options.first_seed + kFinalOffset);
  report.seeds = options.final_seeds;
  report.first_seed = options.first_seed;
  report.rows.push_back(
      row_of(shipped, "as shipped", scenario, shipped_runs, shipped_runs, *measure));
  report.rows.push_back(row_of(best, "tuned", scenario, best_runs, shipped_runs, *measure));
  report.rows.back().set("search_ratio", on_search).set("gain_shown", gains);
  std::vector<Column> columns = arm_columns(scenario);
  columns.insert(columns.begin() + 2, {"pools", "pools"});
  columns.insert(columns.begin() + 3, {"ratio", options.measure + " / shipped", 2});
  report.tables.push_back({.title = "", .columns = std::move(columns)});
  columns = engine_columns();
  columns.pop_back();  // the pools, which the first table has
  report.tables.push_back({.title = "", .columns = std::move(columns), .again = true});
  report.notes.push_back(
      "Gain in " + options.measure + " on seeds that the search has not seen: " + per_cent(ratio) +
      "; on the seeds of the search, which flatter it: " + per_cent(on_search) + ".");
  if (!gains) {
    report.notes.emplace_back(
        "No gain is shown: its interval reaches none. The configuration below is the shipped one.");
    best = shipped;
  }
  if (scenario.arrivals.kind == ArrivalKind::kTrace) {
    report.notes.emplace_back(
        "The search had the first half of the trace, the gain is from the second. Every seed "
        "replays the same requests, so the interval tells of the routers' chance alone: try the "
        "outcome on another day's trace as well.");
  }
  const std::vector<Arm> arms = {arm_of(shipped), arm_of(best)};
  const std::vector<std::vector<RunResult>> both = {shipped_runs, best_runs};
  if (gains) {
    for (const std::string& note : arm_notes(final_scenario, arms, both))
      report.notes.push_back(note);
  }
  tuning.config = tuned_config_yaml(
      best, scenario,
      gains ? options.measure + " against the default: " + per_cent(ratio) + " less"
            : "the default: nothing tried was shown to be better");
  return tuning;
}

}  // namespace pointsman::sim
