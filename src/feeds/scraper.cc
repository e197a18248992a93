#include "feeds/scraper.h"

#include <cstdio>
#include <utility>

#include "base/log.h"
#include "net/http_client.h"

namespace pointsman {
namespace {

constexpr std::string_view kUsualPath = "/metrics";
constexpr std::string_view kOtherPath = "/prometheus/metrics";

// Empty where the page says nothing that cannot be.
std::string implausible_text(const EngineReading& reading) {
  if (reading.implausible.empty()) return {};
  char value[32];
  std::snprintf(value, sizeof value, "%g", reading.implausible_value);
  return std::string(reading.implausible) + " is " + value + ", which is out of its range";
}

}  // namespace

struct Scraper::Target {
  Target(Scraper& scraper, ReplicaIndex its_index, std::shared_ptr<const ReplicaSpec> its_spec)
      : index(its_index),
        spec(std::move(its_spec)),
        get(scraper.reactor_, scraper.resolver_),
        next([this, &scraper] { scraper.scrape(*this); }) {}

  const ReplicaIndex index;
  const std::shared_ptr<const ReplicaSpec> spec;
  HttpGet get;
  Timer next;
  TimePoint started{};
  ReportWindow window = 0;
  bool other_path = false;  // trtllm-serve's
  bool other_path_tried = false;
  std::string usual_problem;  // why the usual path was given up for the other one
  bool warned = false;
  Status status;
};

Scraper::Scraper(Reactor& reactor, Resolver& resolver, Fleet& fleet, SharedRouter& router,
                 const Options& options)
    : reactor_(reactor),
      resolver_(resolver),
      fleet_(fleet),
      router_(router),
      options_(options),
      metrics_(options.own_metrics),
      rng_(options.seed) {}

Scraper::~Scraper() = default;

void Scraper::follow(const Targets& targets) {
  for (Target* fresh : follow_targets(targets_, *this, targets)) scrape(*fresh);
}

std::optional<Scraper::Status> Scraper::status(ReplicaIndex replica) const {
  const auto found = targets_.find(replica);
  if (found == targets_.end()) return std::nullopt;
  return found->second->status;
}

void Scraper::scrape(Target& target) {
  target.started = reactor_.now();
  HttpGetRequest request =
      request_to(*target.spec, target.spec->metrics_port,
                 target.other_path ? kOtherPath : std::string_view(target.spec->metrics_path));
  request.timeout = options_.timeout;
  request.max_body = options_.max_body;
  target.window = router_.with([&](Router& router) { return router.report_opened(target.index); });
  target.get.start(std::move(request),
                   [this, &target](const HttpGetResult& result) { on_result(target, result); });
}

void Scraper::on_result(Target& target, const HttpGetResult& result) {
  const double jitter = 0.9 + 0.2 * rng_.unit();
  const Duration pause = from_seconds(to_seconds(options_.interval) * jitter);
  reactor_.timers().arm_at(target.next, target.started + pause);

  using Ended = HttpGetResult::Outcome;
  // A replica that is loading or failing answers everything with 5xx: its health says that.
  const bool answered =
      (result.outcome == Ended::kAnswered || result.outcome == Ended::kTooLarge) &&
      result.status < 500;
  // It may come back as another engine.
  if (result.outcome == Ended::kRefused) target.other_path_tried = false;
  if (!result.answered(200)) return failed(target, describe_answer(result), answered);
  const EngineReading reading = metrics_.read(result.body);
  if (reading.engine.empty() && !reading.any_load()) {
    const std::string implausible = implausible_text(reading);
    return failed(
        target, implausible.empty() ? "no metric of a known name on the page" : implausible, true);
  }
  apply(target, reading);
}

void Scraper::apply(Target& target, const EngineReading& reading) {
  const TimePoint now = reactor_.now();
  const Signals signals = to_signals(reading, target.window, now, 3 * options_.interval);
  router_.with([&](Router& router) { router.report_applied(target.index, signals); });
  if (target.status.reading.engine != reading.engine) {
    fleet_.set_engine(target.index, reading.engine);
  }
  fleet_.set_awake(target.index, reading.awake.value_or(true));
  target.usual_problem.clear();
  target.status.last_good = now;
  ++target.status.good;
  target.status.problem = implausible_text(reading);
  if (target.status.problem.empty()) {
    target.warned = false;
  } else if (!std::exchange(target.warned, true)) {
    log_warning("replica " + target.spec->url + ": " + target.status.problem +
                "; it counts as unknown");
  }
  target.status.reading = reading;
  if (listener_) listener_(target.index, reading);
}

void Scraper::failed(Target& target, std::string problem, bool answered) {
  ++target.status.failed;
  target.status.problem = std::move(problem);
  if (!answered) return;
  // A replica that answers but has no such page (any more) is not known to be asleep.
  fleet_.set_awake(target.index, true);
  if (target.spec->metrics_path == kUsualPath && !target.other_path_tried) {
    target.other_path = target.other_path_tried = true;
    target.usual_problem = target.status.problem;
    return reactor_.timers().arm_at(target.next, reactor_.now());
  }
  // What is wrong with the usual path says more than that the other one is not there either.
  if (target.other_path && !target.usual_problem.empty()) {
    target.status.problem = target.usual_problem;
  }
  target.other_path = false;
  if (std::exchange(target.warned, true)) return;
  log_warning("replica " + target.spec->url + ": no load signals from " +
              target.spec->metrics_path + " (" + target.status.problem +
              "); its queue and cache count as unknown");
}

Signals to_signals(const EngineReading& reading, ReportWindow window, TimePoint observed_at,
                   Duration max_age) {
  Signals signals;
  signals.observed_at = observed_at;
  signals.max_age = max_age;
  signals.window = window;
  signals.kv_usage = reading.kv_usage;
  signals.running = reading.running;
  signals.waiting = reading.waiting;
  signals.queued_tokens = reading.queued_tokens;
  signals.prefix_hit_rate = reading.prefix_hit_rate;
  signals.prefix_queries = reading.prefix_queries;
  signals.prefix_hits = reading.prefix_hits;
  signals.prefix_caching = reading.prefix_caching;
  signals.kv_capacity_tokens = reading.kv_capacity_tokens;
  signals.block_tokens = reading.block_tokens;
  return signals;
}

}  // namespace pointsman
