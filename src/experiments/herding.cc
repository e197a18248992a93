#include "experiments/herding.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "experiments/compare.h"
#include "experiments/load_series.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSeeds = 20;
constexpr int kQuickSeeds = 4;
constexpr std::uint32_t kRequests = 10'000;
constexpr std::uint32_t kQuickRequests = 4'000;
// Of the rate of `set_a`: how requests are spread decides, not whether there is room for them.
constexpr double kLoad = 0.8;

constexpr std::uint32_t kBalancers[] = {1, 2, 4, 8, 16};
constexpr Duration kPolls[] = {seconds(1), seconds(2), seconds(5)};
constexpr Duration kShownPoll = seconds(2);
constexpr std::uint32_t kShownBalancers = 4;
constexpr Duration kExchanges[] = {Duration::zero(), milliseconds(200), milliseconds(50)};

// Of the series: long after the beginning, for some polls.
constexpr Duration kSeriesBegin = seconds(200);
constexpr Duration kSeriesLength = seconds(30);
constexpr Duration kSeriesStep = milliseconds(200);

// What a decision reads.
enum class Reading : std::uint8_t {
  kBare,     // the newest report alone
  kLive,     // and the prompts that this balancer sent since then
  kShipped,  // and saturated replicas come last, by own counters too
  kOther,    // not by KV use
};
constexpr Reading kReadings[] = {Reading::kBare, Reading::kLive, Reading::kShipped};
constexpr std::string_view kPolicies[] = {"global_least_kv", "least_kv"};

constexpr std::string_view word(Reading reading) {
  constexpr std::string_view kWords[] = {"bare", "live", "shipped", ""};
  return kWords[static_cast<std::size_t>(reading)];
}

struct Herd {
  Arm arm;
  Reading reading = Reading::kOther;
};

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", to_seconds(duration));
  return text;
}

Herd herd(std::string_view preset, Reading reading, std::uint32_t balancers, Duration poll,
          PollPhase phase) {
  Herd made;
  made.reading = reading;
  Arm& arm = made.arm;
  arm.policy.preset = preset;
  arm.balancers = balancers;
  arm.poll = poll;
  // One balancer is in step with itself.
  arm.phase = balancers > 1 ? phase : PollPhase::kSynchronised;
  if (reading == Reading::kBare) arm.policy.options = {{"live", false}};
  if (reading == Reading::kBare || reading == Reading::kLive) {
    // A limit on own counters would be a correction of its own.
    arm.saturation = SaturationLimits{.kv = 1e9, .queue = 1e9, .prefill_tokens = 1e18};
  }
  if (reading != Reading::kOther) arm.label = std::string(word(reading)) + ", ";
  arm.label += "L=" + std::to_string(balancers) + ", poll " + seconds_text(poll);
  if (balancers > 1 && phase == PollPhase::kSynchronised) arm.label += " in step";
  return made;
}

Herd by_requests(std::string_view preset, std::uint32_t balancers) {
  Herd made = herd(preset, Reading::kOther, balancers, kShownPoll, PollPhase::kRandom);
  made.arm.label = "L=" + std::to_string(balancers);
  return made;
}

Herd by_work(std::uint32_t balancers, Duration exchange) {
  Herd made = by_requests("least_work", balancers);
  made.arm.exchange = exchange;
  made.arm.index = IndexKind::kExact;
  made.arm.label +=
      exchange > Duration{} ? ", exchange " + seconds_text(exchange) : ", no exchange";
  return made;
}

// The shown ones first, then the rest of the grid. The very first is `random`.
struct Plan {
  std::vector<Herd> herds;
  std::size_t by_balancers = 0;
  std::size_t by_poll = 0;
  std::size_t by_exchange = 0;
};

void add_rest(std::vector<Herd>& herds) {
  for (const std::uint32_t balancers : kBalancers) {
    if (balancers == kShownBalancers) continue;
    for (const Duration poll : kPolls) {
      for (const PollPhase phase : {PollPhase::kRandom, PollPhase::kSynchronised}) {
        if (phase == PollPhase::kRandom && poll == kShownPoll) continue;
        if (balancers == 1 && phase == PollPhase::kSynchronised) continue;
        for (const std::string_view policy : kPolicies) {
          for (const Reading reading : {Reading::kBare, Reading::kLive}) {
            herds.push_back(herd(policy, reading, balancers, poll, phase));
          }
        }
      }
    }
  }
}

Plan make_plan(bool quick) {
  Plan plan;
  std::vector<std::uint32_t> numbers(std::begin(kBalancers), std::end(kBalancers));
  std::vector<Duration> polls(std::begin(kPolls), std::end(kPolls));
  if (quick) {
    numbers = {1, 4, 16};
    polls = {seconds(2), seconds(5)};
  }
  plan.herds.push_back(by_requests("random", 1));
  for (const std::uint32_t balancers : numbers) {
    plan.herds.push_back(by_requests("least_connections", balancers));
  }
  for (const std::string_view policy : kPolicies) {
    for (const Reading reading : kReadings) {
      for (const std::uint32_t balancers : numbers) {
        plan.herds.push_back(herd(policy, reading, balancers, kShownPoll, PollPhase::kRandom));
      }
    }
  }
  plan.by_balancers = plan.herds.size();
  for (const std::string_view policy : kPolicies) {
    for (const Reading reading : kReadings) {
      for (const Duration poll : polls) {
        for (const PollPhase phase : {PollPhase::kRandom, PollPhase::kSynchronised}) {
          if (phase == PollPhase::kRandom && poll == kShownPoll) continue;
          plan.herds.push_back(herd(policy, reading, kShownBalancers, poll, phase));
        }
      }
    }
  }
  plan.by_poll = plan.herds.size() - plan.by_balancers;
  for (const Duration exchange : kExchanges) {
    for (const std::uint32_t balancers : numbers) {
      if (balancers > 1 || exchange == Duration{}) {
        plan.herds.push_back(by_work(balancers, exchange));
      }
    }
  }
  plan.by_exchange = plan.herds.size() - plan.by_balancers - plan.by_poll;
  if (!quick) add_rest(plan.herds);
  return plan;
}

struct Run {
  RunResult result;
  double swing = 0;
  double favourite_share = 0;
};

class Rows {
 public:
  Rows(std::span<const Herd> herds, std::span<const Run> runs)
      : herds_(herds), runs_(runs), seeds_(runs.size() / herds.size()) {}

  [[nodiscard]] Record row(std::size_t i) const {
    const Herd& herd = herds_[i];
    std::vector<RunResult> results;
    std::vector<double> swings;
    std::vector<double> favourites;
    for (const Run& run : runs_.subspan(i * seeds_, seeds_)) {
      results.push_back(run.result);
      swings.push_back(run.swing);
      favourites.push_back(run.favourite_share);
    }
    Record row = arm_row(herd.arm, results);
    row.set("model", "herding").set("reading", word(herd.reading));
    row.set("phase", *herd.arm.phase == PollPhase::kRandom ? "random" : "synchronised");
    row.set("swing", within(arithmetic_mean(swings), 0, std::numeric_limits<double>::infinity()));
    row.set("favourite_share", within(arithmetic_mean(favourites), 0, 1));
    set_ratios(row, "random", i, 0);
    set_ratios(row, "one_balancer", i, find(i, [](Herd& other) {
                 other.arm.balancers = 1;
                 other.arm.phase = PollPhase::kSynchronised;
                 other.arm.exchange.reset();
               }));
    if (herd.reading == Reading::kOther) return row;
    set_ratios(row, "bare", i, find(i, [](Herd& other) { other.reading = Reading::kBare; }));
    set_ratios(row, "two_choices", i,
               find(i, [](Herd& other) { other.arm.policy.preset = "least_kv"; }));
    return row;
  }

 private:
  // The row that differs from this one by the change alone.
  template <typename Change>
  [[nodiscard]] std::size_t find(std::size_t i, const Change& change) const {
    Herd wanted = herds_[i];
    change(wanted);
    const auto key = [](const Herd& herd) {
      return std::tuple(herd.arm.policy.preset, herd.reading, *herd.arm.balancers, *herd.arm.poll,
                        *herd.arm.phase, herd.arm.exchange.value_or(Duration{}));
    };
    std::size_t place = 0;
    while (place < herds_.size() && key(herds_[place]) != key(wanted)) ++place;
    return place;
  }

  // p50 and p99 over those of another row, seed by seed; null where that row is this one, or not
  // there.
  void set_ratios(Record& row, const std::string& name, std::size_t i, std::size_t other) const {
    if (other == i || other == herds_.size()) {
      row.set_unknown("p50_over_" + name).set_unknown("p99_over_" + name);
      return;
    }
    row.set("p50_over_" + name, ratio(i, other, &RunResult::ttft_p50_s));
    row.set("p99_over_" + name, ratio(i, other, &RunResult::ttft_p99_s));
  }

  [[nodiscard]] Estimate ratio(std::size_t above, std::size_t below,
                               double RunResult::* value) const {
    std::vector<double> over;
    std::vector<double> under;
    for (std::size_t seed = 0; seed < seeds_; ++seed) {
      over.push_back(runs_[above * seeds_ + seed].result.*value);
      under.push_back(runs_[below * seeds_ + seed].result.*value);
    }
    return paired_ratio(over, under);
  }

  std::span<const Herd> herds_;
  std::span<const Run> runs_;
  std::size_t seeds_;
};

std::vector<Herd> series_herds() {
  std::vector<Herd> herds;
  for (const PollPhase phase : {PollPhase::kSynchronised, PollPhase::kRandom}) {
    herds.push_back(herd("global_least_kv", Reading::kBare, kShownBalancers, kShownPoll, phase));
  }
  herds.push_back(herd("global_least_kv", Reading::kShipped, kShownBalancers, kShownPoll,
                       PollPhase::kSynchronised));
  for (const Reading reading : {Reading::kBare, Reading::kShipped}) {
    herds.push_back(
        herd("least_kv", reading, kShownBalancers, kShownPoll, PollPhase::kSynchronised));
  }
  herds.push_back(by_work(kShownBalancers, milliseconds(50)));
  return herds;
}

Record series_row(const Herd& herd, const Scenario& scenario, const Registry& registry,
                  std::uint64_t seed) {
  LoadSeries series(scenario.replicas.size());
  (void)run(scenario, configured(herd.arm, scenario), registry, seed, &series);
  Record row;
  row.set("policy", herd.arm.policy.preset).set("arm", herd.arm.label).set("model", "series");
  row.set("reading", word(herd.reading)).set("seed", seed);
  row.set("poll_s", to_seconds(*herd.arm.poll));
  row.set("begin_s", to_seconds(kSeriesBegin)).set("step_s", to_seconds(kSeriesStep));
  Value::List loads;
  for (const std::vector<double>& load :
       series.sampled(kSeriesBegin, kSeriesBegin + kSeriesLength, kSeriesStep)) {
    loads.push_back(number_list(load));
  }
  row.set("requests_at_replica", std::move(loads));
  return row;
}

}  // namespace

Result<Report> run_herding(const ExperimentOptions& options, const Registry& registry) {
  Scenario scenario = scenario_for(options, "set_a", options.quick ? kQuickRequests : kRequests);
  scenario.arrivals.rate *= kLoad;
  Plan plan = make_plan(options.quick);
  for (Herd& one : plan.herds) {
    one.arm = configured(std::move(one.arm), scenario);
    const Result<void> built = check_arms({&one.arm, 1}, registry);
    if (!built) return built.error();
  }

  const auto seeds = static_cast<std::size_t>(seeds_or(options, kSeeds, kQuickSeeds));
  const std::size_t count = plan.herds.size() * seeds;
  const std::vector<Run> runs = run_parallel(
      count, options.jobs,
      [&](std::size_t i) {
        const Herd& one = plan.herds[i / seeds];
        LoadSeries series(scenario.replicas.size());
        Run made;
        made.result = run(scenario, one.arm, registry, options.first_seed + i % seeds, &series);
        made.swing = series.swing(*one.arm.poll);
        made.favourite_share = series.favourite_share(*one.arm.poll);
        return made;
      },
      [&](std::size_t done) {
        if (options.progress) options.progress(done, count);
      });

  Report report;
  report.experiment = "herding";
  report.title = "When balancers herd: " + counted(scenario.replicas.size(), "replica") +
                 ", reports seconds apart";
  report.scenario = scenario_record(scenario);
  report.scenario.set("first_seed", options.first_seed).set("quick", options.quick);
  report.seeds = static_cast<int>(seeds);
  const Rows rows(plan.herds, runs);
  for (std::size_t i = 0; i < plan.herds.size(); ++i) report.rows.push_back(rows.row(i));
  for (const Herd& one : series_herds()) {
    report.rows.push_back(series_row(one, scenario, registry, options.first_seed));
  }
  const auto columns = [](const char* key, const char* title) {
    return std::vector<Column>{{"policy", "policy"},
                               {"arm", "arm"},
                               {"ttft_p50_s", "p50 TTFT ms", 0, 1'000},
                               {"ttft_p99_s", "p99 TTFT ms", 0, 1'000},
                               {"p99_over_random", "p99 / random", 2},
                               {key, title, 2},
                               {"cv_load", "CV of load", 2},
                               {"swing", "swing", 2},
                               {"favourite_share", "favourite %", 0, 100}};
  };
  report.tables = {{"By the number of balancers L, each with its own poll phase",
                    columns("p99_over_one_balancer", "p99 / L=1"), plan.by_balancers},
                   {"By poll interval and phase",
                    columns("p99_over_two_choices", "p99 / two choices"), plan.by_poll},
                   {"least_work with and without exchange of charges; exact index",
                    columns("p99_over_one_balancer", "p99 / L=1"), plan.by_exchange}};
  report.notes = {
      "bare: the newest report alone decides. live: the prompts that the balancer itself sent "
      "since "
      "then are added. shipped: and replicas that are saturated, by its own counters too, come "
      "last.",
      "swing: a replica's most less its fewest requests within a poll interval, over the mean. "
      "favourite: share of an interval's requests that went to one replica.",
      "The JSON file has every number of balancers at every poll interval and phase, and the "
      "requests at each replica over half a minute (rows of model \"series\")."};
  for (std::size_t i = 0; i < plan.herds.size(); ++i) {
    std::vector<RunResult> results;
    for (const Run& one : std::span(runs).subspan(i * seeds, seeds)) results.push_back(one.result);
    for (std::string& note :
         arm_notes(scenario, std::span(&plan.herds[i].arm, 1), std::span(&results, 1))) {
      report.notes.push_back(std::move(note));
    }
  }
  return report;
}

}  // namespace pointsman::sim
