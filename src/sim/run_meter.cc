#include "sim/run_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace pointsman::sim {
namespace {

EngineTotal busy_time(std::span<const VirtualEngine> engines, TimePoint now) {
  EngineTotal busy{};
  for (const VirtualEngine& engine : engines) busy += engine.busy(now);
  return busy;
}

// Seconds. In less there is no rate to speak of: all came at once.
constexpr double kShortestWindow = 1e-3;

// Of the series that growth is judged by. The longest runs are those of closed loops.
constexpr std::size_t kMostSamples = 8'192;

// The second, the fourth, …: those that a stride twice as long would have left.
void keep_every_second(std::vector<double>& values) {
  for (std::size_t i = 1; i < values.size(); i += 2) values[i / 2] = values[i];
  values.resize(values.size() / 2);
}

}  // namespace

RunMeter::RunMeter(const MeasureSpec& spec, std::vector<PoolIndex> pools)
    : spec_(spec), load_(pools.size()), pools_(std::move(pools)), sent_to_(pools_.size(), 0) {
  for (const PoolIndex pool : pools_) {
    if (pool >= backlogs_.size()) backlogs_.resize(std::size_t{pool} + 1);
  }
}

void RunMeter::begin(TimePoint now, std::span<const VirtualEngine> engines) {
  measuring_ = true;
  begun_ = now;
  load_.begin(now);
  busy_ = -busy_time(engines, now);
}

void RunMeter::end(TimePoint now, std::span<const VirtualEngine> engines) {
  if (!measuring_) return;
  measuring_ = false;
  load_.end(now);
  busy_ += busy_time(engines, now);
}

void RunMeter::sample(TimePoint now, std::span<const VirtualEngine> engines) {
  if (!measuring_) return;
  ++samples_;
  double kv = 0;
  for (const VirtualEngine& engine : engines) kv += engine.state(now).kv_usage;
  kv_ += kv / static_cast<double>(engines.size());
  if (samples_ % stride_ != 0) return;
  if (backlogs_.front().in_flight.size() == kMostSamples) {
    for (Backlog& backlog : backlogs_) {
      keep_every_second(backlog.in_flight);
      keep_every_second(backlog.waiting);
      keep_every_second(backlog.generated);
    }
    stride_ *= 2;
  }
  for (Backlog& backlog : backlogs_) {
    backlog.in_flight.push_back(0);
    backlog.waiting.push_back(0);
    backlog.generated.push_back(0);
  }
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    Backlog& backlog = backlogs_[pools_[i]];
    backlog.in_flight.back() += static_cast<double>(load_.load(i));
    const EngineState state = engines[i].state(now);
    backlog.waiting.back() += static_cast<double>(state.waiting);
    backlog.generated.back() += static_cast<double>(state.generated_tokens);
  }
  sampled_ = now;
}

void RunMeter::arrived(bool follow_up) {
  ++arrivals_;
  if (follow_up) ++follow_ups_;
}

void RunMeter::sent(const Decision& decision) {
  ++backlogs_[decision.pool].sent;
  ++sent_to_[decision.order[0]];
  if (decision.reason == Reason::kValve) ++valve_openings_;
  if (decision.reason == Reason::kAllSaturated) ++all_saturated_;
  if (decision.pool_fallback) ++fallbacks_;
}

void RunMeter::finished(const RequestLog::Entry& entry, const Tokens& tokens) {
  requests_.add(entry);
  prompt_tokens_ += tokens.prompt;
  cached_tokens_ += tokens.cached;
  known_tokens_ += tokens.known;
  predicted_tokens_ += tokens.predicted;
}

double RunMeter::completion_rate() const {
  if (load_.seconds() <= 0) return RunResult::kNone;
  return static_cast<double>(completions_) / load_.seconds();
}

// The slope over time by least squares; samples are equally far apart.
double RunMeter::growth(const Backlog& backlog) const {
  const std::vector<double>& values = backlog.in_flight;
  const double middle = (static_cast<double>(values.size()) - 1) / 2;
  double covariance = 0;
  double variance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double t = static_cast<double>(i) - middle;
    covariance += t * values[i];
    variance += t * t;
  }
  if (variance <= 0) return 0;
  const double interval = to_seconds(sampled_ - begun_) / static_cast<double>(values.size());
  return covariance / variance / interval;
}

// Whether the engines did hardly more in the second half of the window than in the first, though
// far more was in flight. In a fleet that fills up, what is in flight is at work, and the tokens
// that come out grow with it; where they do not, the engines are at their limit, and what comes on
// top only makes every answer slower. The batches and the cache take that in before anything waits.
//
// At least a fifth of what was sent must have piled up, so that a few long generations do not
// count, and nearly half of that in the second half. The more has piled up, the plainer it is: of
// the growth of what is in flight, less than that share, and than two fifths, may have become a
// growth of what comes out.
bool RunMeter::is_at_its_limit(const Backlog& backlog) {
  const std::vector<double>& values = backlog.in_flight;
  const std::size_t middle = values.size() / 2;
  const double grew = values.back() - values.front();
  const double piled_up = grew / std::max(1.0, static_cast<double>(backlog.sent));
  if (piled_up < 0.2 || values.back() - values[middle] < 0.45 * grew) return false;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(middle);
  const double before = std::accumulate(values.begin(), half, 0.0) / static_cast<double>(middle);
  const double after =
      std::accumulate(half, values.end(), 0.0) / static_cast<double>(values.size() - middle);
  if (after <= before) return false;
  const std::vector<double>& generated = backlog.generated;
  const double done_before = (generated[middle] - generated.front()) / static_cast<double>(middle);
  const double done_after =
      (generated.back() - generated[middle]) / static_cast<double>(values.size() - 1 - middle);
  return (done_after - done_before) * before <
         std::min(piled_up, 0.4) * done_before * (after - before);
}

// Whether more was sent to the pool than it could do, so that ever more of it waits at the engines.
//
// What is in flight is looked at in sixteen parts of the window. Where a pool cannot keep up, it
// grows by about the same in each; so the sixteen increments have a mean above zero, which
// Student's test tells from chance (one-sided, 0.5 %). At the very limit of the capacity the queue
// is a random walk with independent increments, for which the test is made; below it what came goes
// again, increments take each other back, and the test says "grown" more rarely still. A fleet that
// fills up at the beginning grows little in the second half, and what it has more of runs: a
// quarter of the growth at least must be waiting, or the engines at their limit.
bool RunMeter::outgrown(const Backlog& backlog) const {
  constexpr std::size_t kParts = 16;
  constexpr double kStudent = 2.947;  // 15 degrees of freedom
  constexpr double kFew = 8;
  const std::vector<double>& values = backlog.in_flight;
  if (values.size() < 2 * kParts) return false;
  const auto at = [&](std::size_t part) { return values[part * (values.size() - 1) / kParts]; };
  const double grew = at(kParts) - at(0);
  if (grew <= kFew || grew <= 0.01 * static_cast<double>(backlog.sent)) return false;
  if (at(kParts) - at(kParts / 2) < grew / 4) return false;
  if (backlog.waiting.back() - backlog.waiting.front() < grew / 4 && !is_at_its_limit(backlog)) {
    return false;
  }
  const double mean = grew / kParts;
  double squares = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    const double apart = at(part + 1) - at(part) - mean;
    squares += apart * apart;
  }
  const double deviation = std::sqrt(squares / (kParts - 1));
  return mean * std::sqrt(kParts) > kStudent * deviation;
}

void RunMeter::write(RunResult& result) {
  const double seconds = load_.seconds();
  requests_.measure(spec_, seconds >= kShortestWindow ? seconds : 0, result);
  if (prompt_tokens_ > 0) {
    const auto prompts = static_cast<double>(prompt_tokens_);
    result.prefix_hit_rate = static_cast<double>(cached_tokens_) / prompts;
    result.prefix_hit_bound = static_cast<double>(known_tokens_) / prompts;
    result.predicted_hit_rate = static_cast<double>(predicted_tokens_) / prompts;
  }
  if (arrivals_ > 0) {
    result.follow_up_share = static_cast<double>(follow_ups_) / static_cast<double>(arrivals_);
  }
  const std::uint64_t sent = std::accumulate(sent_to_.begin(), sent_to_.end(), std::uint64_t{0});
  if (sent > 0) {
    const auto [least, most] = std::minmax_element(sent_to_.begin(), sent_to_.end());
    result.replica_share_min = static_cast<double>(*least) / static_cast<double>(sent);
    result.replica_share_max = static_cast<double>(*most) / static_cast<double>(sent);
  }
  if (seconds >= kShortestWindow) {
    result.offered_rps = static_cast<double>(arrivals_) / seconds;
    result.busy_share = seconds_of(busy_) / (seconds * static_cast<double>(load_.replicas()));
    result.cv_load = load_.mean_cv();
    result.mean_in_flight = load_.mean_total();
  }
  if (samples_ > 0 && seconds >= kShortestWindow) {
    result.mean_kv = kv_ / static_cast<double>(samples_);
    result.queue_growth_rps = 0;
    for (const Backlog& backlog : backlogs_) {
      result.queue_growth_rps += growth(backlog);
      if (outgrown(backlog)) result.over_capacity = 1;
    }
  }
  result.valve_openings = static_cast<double>(valve_openings_);
  result.all_saturated = static_cast<double>(all_saturated_);
  result.pool_fallbacks = static_cast<double>(fallbacks_);
  result.retried = static_cast<double>(retried_);
  result.failed = static_cast<double>(failed_);
}

}  // namespace pointsman::sim
