#include "feeds/health.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "net/http_client.h"

namespace pointsman {
namespace {

constexpr std::string_view kFallbackPath = "/v1/models";
constexpr std::size_t kMaxBody = std::size_t{1} << 20;

}  // namespace

struct Prober::Target {
  Target(Prober& prober, ReplicaIndex its_index, std::shared_ptr<const ReplicaSpec> its_spec)
      : index(its_index),
        spec(std::move(its_spec)),
        get(prober.reactor_, prober.resolver_),
        next([this, &prober] { prober.probe(*this); }) {}

  const ReplicaIndex index;
  const std::shared_ptr<const ReplicaSpec> spec;
  HttpGet get;
  Timer next;
  TimePoint started{};
  bool fallback = false;  // the readiness path is not there
  bool probed = false;    // at least once
};

Prober::Prober(Reactor& reactor, Resolver& resolver, Fleet& fleet, const Options& options,
               LastByte last_byte)
    : reactor_(reactor),
      resolver_(resolver),
      fleet_(fleet),
      options_(options),
      last_byte_(std::move(last_byte)),
      rng_(options.seed) {}

Prober::~Prober() = default;

void Prober::follow(const Targets& targets) {
  for (Target* fresh : follow_targets(targets_, *this, targets)) probe(*fresh);
}

bool Prober::all_probed() const {
  return std::ranges::all_of(targets_, [](const auto& entry) { return entry.second->probed; });
}

void Prober::probe(Target& target) {
  target.started = reactor_.now();
  HttpGetRequest request = target.fallback ? request_to(*target.spec, 0, kFallbackPath)
                                           : request_to(*target.spec, target.spec->health_port,
                                                        target.spec->health_path);
  request.timeout = options_.timeout;
  request.max_body = kMaxBody;
  target.get.start(std::move(request),
                   [this, &target](const HttpGetResult& result) { on_result(target, result); });
}

void Prober::on_result(Target& target, const HttpGetResult& result) {
  using Ended = HttpGetResult::Outcome;
  using Kind = ProbeResult::Kind;
  if (result.outcome == Ended::kOwnLack) {
    if (!std::exchange(lacking_, true)) {
      log_error("cannot probe replicas: " + result.detail +
                "; their health stays as it is (raise the limit of open files, see `ulimit -n`)");
    }
    return probe_again(target);
  }
  if (std::exchange(lacking_, false)) log_info("replicas are probed again");
  const bool answered = result.outcome == Ended::kAnswered || result.outcome == Ended::kTooLarge;
  if (answered && !target.fallback && (result.status == 404 || result.status == 405)) {
    target.fallback = true;
    log_info("replica " + target.spec->url + ": no " + target.spec->health_path + " (" +
             std::to_string(result.status) + "), probing " + std::string(kFallbackPath) +
             " instead");
    return probe(target);
  }

  ProbeResult probe_result;
  probe_result.detail = describe_answer(result);
  switch (result.outcome) {
    case Ended::kAnswered:
    case Ended::kTooLarge: {
      const bool good = result.status >= 200 && result.status < 300;
      const bool alive = target.fallback && (result.status == 401 || result.status == 403);
      probe_result.kind = good || alive ? Kind::kReady : Kind::kNotReady;
      break;
    }
    case Ended::kRefused:
    case Ended::kReset:
      probe_result.kind = Kind::kRefused;
      probe_result.detail =
          result.outcome == Ended::kRefused ? "connection refused" : "connection reset";
      target.fallback = false;
      break;
    case Ended::kTimedOut:
      probe_result.kind = last_byte_ && last_byte_(target.index) >= target.started
                              ? Kind::kTimedOutServing
                              : Kind::kTimedOut;
      break;
    case Ended::kTimedOutMidway:
      probe_result.kind = Kind::kTimedOutServing;
      break;
    case Ended::kClosed:
    case Ended::kUnreachable:
    case Ended::kUnresolved:
    case Ended::kBroken:
    case Ended::kOwnLack:
      probe_result.kind = Kind::kFailed;
      break;
  }
  target.probed = true;
  probe_again(target);
  fleet_.probe_result(target.index, probe_result);
}

void Prober::probe_again(Target& target) {
  const double jitter = 0.9 + 0.2 * rng_.unit();
  const Duration pause = from_seconds(to_seconds(options_.interval) * jitter);
  reactor_.timers().arm_at(target.next, target.started + pause);
}

}  // namespace pointsman
