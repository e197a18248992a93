#include "experiments/definitions.h"

#include <array>

#include "sim/run_result.h"

namespace pointsman::sim {
namespace {

constexpr std::array kRows = {
    Definition{"policy", "the policy's preset"},
    Definition{"arm", "what else distinguishes the row: options, balancers, reports, pools"},
    Definition{"model", "which kind of row it is"},
    Definition{"seed", "of the runs, or of what was drawn"},
    Definition{"seeds", "runs of the row, where they differ from the report's"},
    Definition{"scenario", "the named scenario"},
    Definition{"pools", "replicas: general / long context / long generation"},
};

constexpr std::array kTable = {
    Definition{"goodput_ratio", "goodput_rps over that of round_robin, seed by seed"},
    Definition{"closed_loop_ratio", "closed_loop_rps over that of round_robin, seed by seed"},
    Definition{"speed_ratio", "e2e_mean_s of round_robin over that of the row, seed by seed"},
    Definition{"published_*", "the published value of that key"},
    Definition{"*_deviation", "value over the published one, less 1"},
    Definition{"claim", "what must hold of the table"},
    Definition{"value", "the figure that the claim is about, or a fitted constant"},
    Definition{"least", "from where on the claim holds"},
    Definition{"most", "up to where the claim holds"},
    Definition{"holds",
               "whether it does: of a claim of the table the value alone, wherever its "
               "interval ends; of a closed form what `allowed` says"},
    Definition{"sharing", "share of requests that are follow-up turns, as set"},
};

constexpr std::array kPolicies = {
    Definition{"p99_gain",
               "ttft_p99_s of the reference (session_affinity with segregation, or `against`) over "
               "that of the row: of random settings the median; above 1 the row is faster"},
    Definition{"p99_gain_mean", "the same, geometric mean over settings"},
    Definition{"p50_gain", "ttft_p50_s of the reference over that of the row, in the same way"},
    Definition{"p50_gain_mean", "the same, geometric mean over settings"},
    Definition{"better_p99_share", "share of settings in which the row has the lower ttft_p99_s"},
    Definition{"better_p50_share", "share of settings in which the row has the lower ttft_p50_s"},
    Definition{"p50_no_loss_share",
               "share of settings in which its ttft_p50_s is at most 5 % above the reference's"},
    Definition{"best_p99_share", "share of settings in which no other row has a lower ttft_p99_s"},
    Definition{"over_capacity_share", "share of settings with a run above capacity"},
    Definition{"p99_gain_load_*",
               "p99_gain in settings with a load between these, in per cent of the capacity"},
    Definition{"p99_gain_balancers_*", "p99_gain in settings with so many balancers"},
    Definition{"p99_gain_within_capacity",
               "p99_gain in settings in which the reference is not above its capacity"},
    Definition{"against", "the policy that the row is compared with"},
    Definition{"change", "what happens in the scenario"},
    Definition{"drawn", "what was drawn for the setting"},
    Definition{"policies", "the figures of each policy in the setting"},
};

constexpr std::array kHerding = {
    Definition{"reading",
               "which reading of the KV cache decides: bare report, own sends added, "
               "or another measure"},
    Definition{"phase", "when balancers poll: random or synchronised"},
    Definition{"swing",
               "most less fewest requests at a replica within a poll interval, over the "
               "mean load of a replica; mean over intervals and replicas"},
    Definition{"favourite_share",
               "share of a poll interval's requests that went to the replica which got most"},
    Definition{"p50_over_*", "ttft_p50_s over that of the row named, seed by seed"},
    Definition{"p99_over_*", "ttft_p99_s over that of the row named, seed by seed"},
    Definition{"begin_s", "of a series: time of its first value since the run began"},
    Definition{"step_s", "of a series: time between two values"},
    Definition{"requests_at_replica", "a series for each replica: requests in flight there"},
};

constexpr std::array kValve = {
    Definition{"setting", "slack, middle or kv_bound"},
    Definition{"blocks", "KV blocks of each replica"},
    Definition{"valve_kv", "live KV use at which the valve opens; null: other limits, or never"},
    Definition{"valve_share", "share of the measured requests that found their home saturated"},
};

constexpr std::array kSegregation = {
    Definition{"document_share", "share of conversations that begin with a long document"},
    Definition{"rate_rps", "requests per second, as set"},
    Definition{"stated_limit_tokens", "limit on the output that every client states"},
    Definition{"short_p99_gain",
               "ttft_p99_short_s without pools over that of the row, seed by seed"},
    Definition{"long_p99_price",
               "ttft_p99_long_s of the row over that without pools, seed by seed"},
};

constexpr std::array kTheory = {
    Definition{"choices", "queues or bins that each choice compares"},
    Definition{"load", "arrivals per queue and mean service time"},
    Definition{"queues", "number of queues"},
    Definition{"time_in_system_s",
               "mean time from arrival to the end of service, in mean service "
               "times"},
    Definition{"limit_s", "the same by the closed form for infinitely many queues"},
    Definition{"deviation", "time_in_system_s over limit_s, less 1"},
    Definition{"mean_in_system", "customers per queue, mean over time"},
    Definition{"limit_in_system", "the same by the closed form"},
    Definition{"customers", "measured customers of all runs"},
    Definition{"start", "queues at the start: empty, or drawn from the limit's law"},
    Definition{"warm_up_s", "time before the measured one"},
    Definition{"length_s", "time in which measured customers arrive"},
    Definition{"allowed", "deviation that the closed form is held to"},
    Definition{"bins", "number of bins, and of balls"},
    Definition{"throws", "number of times that all balls were thrown"},
    Definition{"fullest", "balls in the fullest bin, mean over throws"},
    Definition{"fullest_expected", "the same of independent bins with the limit's law"},
    Definition{"leading_term", "ln n / ln ln n with one choice, ln ln n / ln d with d"},
    Definition{"share_at_least_*_limit", "that share as n grows without bound"},
    Definition{"share_at_least_*", "share of bins with so many balls or more"},
};

constexpr std::array kCalibrate = {
    Definition{"key", "the constant, as a key of a scenario file"},
    Definition{"shown", "value and interval with their unit"},
    Definition{"told", "whether the log tells the constant"},
    Definition{"verdict", "the same in words"},
    Definition{"needs", "what a log must have to tell it"},
    Definition{"what",
               "which time is predicted: of requests that met no other prefill by the fitted "
               "formula, or of all by running the log again"},
    Definition{"held_out", "requests that took no part in the fit and are predicted"},
    Definition{"mape", "mean absolute error of these predictions, as a share of what was measured"},
    Definition{"mape_of_median", "the same of predicting the median for all"},
};

constexpr std::array kTune = {
    Definition{"ratio",
               "the tuned time over that of the shipped configuration, seed by seed, on "
               "seeds or requests that the search has not seen"},
    Definition{"ttft_p50_ratio", "ttft_p50_s over that of the shipped configuration"},
    Definition{"e2e_mean_ratio", "e2e_mean_s over that of the shipped configuration"},
    Definition{"search_ratio", "the ratio on what the search has seen, which flatters it"},
    Definition{"gain_shown", "whether the interval of the ratio is clear of 1"},
};

constexpr std::array kGroups = {
    DefinitionGroup{"Every row", kRows},
    DefinitionGroup{"simulate table", kTable},
    DefinitionGroup{"simulate policies, simulate best", kPolicies},
    DefinitionGroup{"simulate herding", kHerding},
    DefinitionGroup{"simulate valve", kValve},
    DefinitionGroup{"simulate segregation", kSegregation},
    DefinitionGroup{"simulate theory", kTheory},
    DefinitionGroup{"simulate calibrate", kCalibrate},
    DefinitionGroup{"simulate tune", kTune},
};

bool matches(std::string_view pattern, std::string_view key) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == key;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  return key.size() > before.size() + after.size() && key.starts_with(before) &&
         key.ends_with(after);
}

std::string_view mean_word(MeasureMean mean) {
  switch (mean) {
    case MeasureMean::kGeometric:
      return "geometric";
    case MeasureMean::kArithmetic:
      return "arithmetic";
    case MeasureMean::kShare:
      return "share";
  }
  return "";
}

}  // namespace

std::span<const DefinitionGroup> definition_groups() {
  return kGroups;
}

std::optional<std::string_view> definition_of(std::string_view key) {
  if (const Measure* measure = find_measure(key)) return measure->name;
  // Whole keys before patterns.
  for (const bool patterns : {false, true}) {
    for (const DefinitionGroup& group : kGroups) {
      for (const Definition& one : group.definitions) {
        if (patterns == (one.key.find('*') != std::string_view::npos) && matches(one.key, key)) {
          return one.meaning;
        }
      }
    }
  }
  return std::nullopt;
}

std::string definitions_markdown() {
  std::string out = R"(<!-- Made by `pointsman simulate keys`; a test holds the two equal. -->
# The keys of the files

What `--json` and `--csv` of the experiments write. The JSON file says the same of the keys that it has under
`definitions`. Keys that end in `_s` are seconds, in `_rps` requests per second, in `_share` shares from 0 to 1. Beside a key
may stand `<key>_ci95`, its 95 % interval (in the CSV file `<key>_ci95_low` and `<key>_ci95_high`); `null`, or an empty
cell, is what was not measured.

## Measures of a run

Of several seeds each is the mean that the table names; a *share* is that of the runs.

| key | is | mean over seeds |
|---|---|---|
)";
  for (const Measure& measure : measures()) {
    out.append("| `").append(measure.key).append("` | ").append(measure.name).append(" | ");
    out.append(mean_word(measure.mean)).append(" |\n");
  }
  for (const DefinitionGroup& group : kGroups) {
    out.append("\n## ").append(group.title).append("\n\n| key | is |\n|---|---|\n");
    for (const Definition& one : group.definitions) {
      out.append("| `").append(one.key).append("` | ").append(one.meaning).append(" |\n");
    }
  }
  return out;
}

}  // namespace pointsman::sim
