#include "experiments/theory.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/balls_into_bins.h"
#include "experiments/run_parallel.h"
#include "experiments/supermarket.h"

namespace pointsman::sim {
namespace {

constexpr int kSeeds = 20;
constexpr int kQuickSeeds = 4;
// The closed forms are of infinitely many queues. With so many they hold within
// allowed_deviation(), and the windows below are long enough to show it.
constexpr std::uint32_t kFewestQueues = 4'000;
// Throws are cheap, and the fullest bin is a whole number: many per seed.
constexpr int kThrowsPerSeed = 10;

// What the mean time in the system may be off its limit by, with two and more choices.
double allowed_deviation(double load) {
  return load > 0.95 ? 0.02 : 0.01;
}

std::string choices_arm(std::uint32_t choices) {
  return "d=" + std::to_string(choices);
}

Record common(std::string_view model, std::uint32_t choices) {
  return Record()
      .set("policy", "least_connections")
      .set("arm", choices_arm(choices))
      .set("model", model)
      .set("choices", choices);
}

// How long to run. At low load the queues start empty and find the limit themselves. At high load
// that would take too long: with one choice a queue forgets its start within some 1/(1 − √load)²
// seconds, 40,000 at 0.99. There they start from the limit's law, and would leave it if it were not
// theirs.
SupermarketSpec large_run(std::uint32_t queues, double load, std::uint32_t choices) {
  SupermarketSpec spec{.queues = queues, .load = load, .choices = choices};
  spec.from_limit = load > 0.75;
  spec.warm_up_s = spec.from_limit ? 10 : (choices == 1 ? 100 : 30);
  spec.length_s = load < 0.85 || choices == 1 ? 30 : (load < 0.97 && load > 0.92 ? 120 : 60);
  return spec;
}

// Few queues settle somewhat above the limit, so they run until they have left it.
SupermarketSpec small_run(std::uint32_t queues, double load) {
  SupermarketSpec spec{.queues = queues, .load = load, .choices = 2};
  const double scale = load > 0.95 ? 10 : 1;
  spec.warm_up_s = 100 * scale;
  // As many customers for each number of queues.
  spec.length_s = 100'000 * scale / queues;
  return spec;
}

std::vector<SupermarketSpec> supermarket_specs(const ExperimentOptions& options) {
  const auto queues = static_cast<std::uint32_t>(options.replicas.value_or(kFewestQueues));
  const std::vector<double> loads = options.quick
                                        ? std::vector<double>{0.5, 0.9, 0.99}
                                        : std::vector<double>{0.5, 0.7, 0.8, 0.9, 0.95, 0.99};
  std::vector<SupermarketSpec> specs;
  for (std::uint32_t choices = 1; choices <= 3; ++choices) {
    for (const double load : loads) specs.push_back(large_run(queues, load, choices));
  }
  return specs;
}

std::vector<SupermarketSpec> finite_specs(const ExperimentOptions& options) {
  if (options.quick) return {small_run(100, 0.9)};
  return {small_run(10, 0.9), small_run(100, 0.9), small_run(1'000, 0.9), small_run(100, 0.95),
          small_run(100, 0.99)};
}

struct BinsSpec {
  std::uint32_t bins;
  std::uint32_t choices;
};

std::vector<BinsSpec> bins_specs(const ExperimentOptions& options) {
  std::vector<BinsSpec> specs;
  for (std::uint32_t choices = 1; choices <= 2; ++choices) {
    for (std::uint32_t bins = options.quick ? 512 : 8; bins <= kMaxReplicas; bins *= 4) {
      specs.push_back({bins, choices});
    }
  }
  return specs;
}

// One run of a supermarket, or a seed's throws into bins.
struct Run {
  SupermarketRun market;
  std::vector<double> fullest;                  // of each throw
  std::vector<std::array<double, 4>> at_least;  // share of bins with at least i balls, each throw
};

Result<Run> run_bins(const BinsSpec& spec, const Registry& registry, std::uint64_t seed) {
  Run run;
  for (int i = 0; i < kThrowsPerSeed; ++i) {
    const std::uint64_t own = seed * kThrowsPerSeed + static_cast<std::uint64_t>(i);
    const auto counts = throw_balls(spec.bins, spec.choices, registry, own);
    if (!counts) return counts.error();
    run.fullest.push_back(static_cast<double>(counts->size() - 1));
    std::array<double, 4>& shares = run.at_least.emplace_back();
    for (std::size_t j = 0; j < shares.size(); ++j) {
      shares[j] = j < counts->size() ? static_cast<double>((*counts)[j]) / spec.bins : 0;
    }
  }
  return run;
}

Record supermarket_row(const SupermarketSpec& spec, bool finite, const std::vector<Run>& runs) {
  std::vector<double> times;
  std::vector<double> lengths;
  std::uint64_t customers = 0;
  for (const Run& run : runs) {
    times.push_back(run.market.time_in_system_s);
    lengths.push_back(run.market.mean_in_system);
    customers += run.market.customers;
  }
  constexpr double kAny = std::numeric_limits<double>::infinity();
  const Estimate time = within(arithmetic_mean(times), 0, kAny);
  const double limit = supermarket_time_s(spec.load, spec.choices);
  const Estimate deviation{time.mean / limit - 1, time.low / limit - 1, time.high / limit - 1};
  Record row = common(finite ? "finite" : "supermarket", spec.choices);
  row.set("load", spec.load).set("queues", spec.queues);
  row.set("time_in_system_s", time).set("limit_s", limit).set("deviation", deviation);
  row.set("mean_in_system", within(arithmetic_mean(lengths), 0, kAny))
      .set("limit_in_system", limit * spec.load);
  row.set("customers", customers).set("start", spec.from_limit ? "limit" : "empty");
  row.set("warm_up_s", spec.warm_up_s).set("length_s", spec.length_s);
  if (!finite) {
    const bool one = spec.choices == 1;
    row.set("allowed",
            one ? std::string("95 % interval")
                : "±" + std::to_string(std::lround(100 * allowed_deviation(spec.load))) + " %");
    if (one && times.size() < 2) {
      row.set("holds", Value());  // one run has no interval
    } else {
      row.set("holds", one ? time.contains(limit)
                           : std::abs(deviation.mean) <= allowed_deviation(spec.load));
    }
  }
  return row;
}

Record bins_row(const BinsSpec& spec, const std::vector<Run>& runs) {
  std::vector<double> fullest;
  std::array<std::vector<double>, 4> shares;
  for (const Run& run : runs) {
    fullest.insert(fullest.end(), run.fullest.begin(), run.fullest.end());
    for (const std::array<double, 4>& one : run.at_least) {
      for (std::size_t i = 0; i < one.size(); ++i) shares[i].push_back(one[i]);
    }
  }
  const double log_n = std::log(static_cast<double>(spec.bins));
  const std::vector<double> limit = bins_limit(spec.choices, 3);
  Record row = common("bins", spec.choices);
  row.set("bins", spec.bins).set("throws", fullest.size());
  row.set("fullest", arithmetic_mean(fullest));
  row.set("fullest_expected", expected_fullest(spec.bins, spec.choices));
  row.set("leading_term",
          spec.choices == 1 ? log_n / std::log(log_n) : std::log(log_n) / std::log(spec.choices));
  for (std::size_t i = 1; i < shares.size(); ++i) {
    const std::string key = "share_at_least_" + std::to_string(i);
    row.set(key, within(arithmetic_mean(shares[i]), 0, 1)).set(key + "_limit", limit[i]);
  }
  return row;
}

std::vector<Table> tables(std::size_t supermarket, std::size_t finite) {
  return {{"Supermarket model: mean time in the system, in mean service times",
           {{"choices", "choices"},
            {"load", "load", 2},
            {"time_in_system_s", "simulated", 3},
            {"limit_s", "closed form", 3},
            {"deviation", "deviation, %", 2, 100},
            {"allowed", "allowed"},
            {"holds", "holds"}},
           supermarket},
          {"Few queues, two choices: how far the limit for infinitely many is off",
           {{"queues", "queues"},
            {"load", "load", 2},
            {"time_in_system_s", "simulated", 3},
            {"limit_s", "closed form", 3},
            {"deviation", "deviation, %", 1, 100}},
           finite},
          {"Balls into bins: balls in the fullest of n bins after n balls",
           {{"choices", "choices"},
            {"bins", "n"},
            {"fullest", "simulated", 2},
            {"fullest_expected", "expected", 2},
            {"leading_term", "leading term", 2},
            {"share_at_least_2", "bins with 2 or more", 4},
            {"share_at_least_2_limit", "limit", 4}},
           0}};
}

}  // namespace

Result<Report> run_theory(const ExperimentOptions& options, const Registry& registry) {
  if (options.replicas && static_cast<std::uint32_t>(*options.replicas) < kFewestQueues) {
    return Error{ErrorKind::kClient,
                 "--replicas: the closed forms are of very many queues, and do not hold of " +
                     std::to_string(*options.replicas) + "; allowed are " +
                     std::to_string(kFewestQueues) + " to " + std::to_string(kMaxReplicas)};
  }
  const std::vector<SupermarketSpec> large = supermarket_specs(options);
  const std::vector<SupermarketSpec> small = finite_specs(options);
  const std::vector<BinsSpec> bins = bins_specs(options);
  const auto seeds = static_cast<std::size_t>(seeds_or(options, kSeeds, kQuickSeeds));

  const std::size_t rows = large.size() + small.size() + bins.size();
  const auto run_one = [&](std::size_t task) -> Result<Run> {
    const std::size_t row = task / seeds;
    const std::uint64_t seed = options.first_seed + task % seeds;
    if (row >= large.size() + small.size()) {
      return run_bins(bins[row - large.size() - small.size()], registry, seed);
    }
    const SupermarketSpec& spec = row < large.size() ? large[row] : small[row - large.size()];
    Result<SupermarketRun> market = run_supermarket(spec, registry, seed);
    if (!market) return market.error();
    return Run{.market = *market, .fullest = {}, .at_least = {}};
  };
  const std::size_t all = rows * seeds;
  const auto progress = [&options, all](std::size_t done) {
    if (options.progress) options.progress(done, all);
  };
  const std::vector<Result<Run>> results = run_parallel(all, options.jobs, run_one, progress);

  Report report;
  report.experiment = "theory";
  report.title = "The two-choice sampler and the simulator's clock against closed forms";
  report.seeds = static_cast<int>(seeds);
  report.scenario.set("service", "exponential, mean 1 s")
      .set("arrivals", "Poisson")
      .set("first_seed", options.first_seed)
      .set("quick", options.quick)
      .set("policy", "least_connections with `choices` d, from the shipped router");
  std::size_t kept = 0;
  std::size_t promised = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<Run> runs;
    for (std::size_t i = 0; i < seeds; ++i) {
      const Result<Run>& result = results[row * seeds + i];
      if (!result) return result.error();
      runs.push_back(*result);
    }
    if (row < large.size()) {
      report.rows.push_back(supermarket_row(large[row], false, runs));
      if (const bool* holds = report.rows.back().find("holds")->as<bool>()) {
        ++promised;
        kept += *holds ? 1 : 0;
      }
    } else if (row < large.size() + small.size()) {
      report.rows.push_back(supermarket_row(small[row - large.size()], true, runs));
    } else {
      report.rows.push_back(bins_row(bins[row - large.size() - small.size()], runs));
    }
  }
  report.tables = tables(large.size(), small.size());
  report.notes = {
      std::to_string(kept) + " of " + counted(promised, "row") +
          " agree with the closed form. One choice is held to its own 95 % interval, which "
          "misses once in twenty by chance alone.",
      "Intervals: Student's, over " + counted(seeds, "seed") + "; of bins over " +
          std::to_string(kThrowsPerSeed) + " throws a seed."};
  if (options.sharing) report.notes.emplace_back("There are no prompts here: --sharing is idle.");
  return report;
}

}  // namespace pointsman::sim
