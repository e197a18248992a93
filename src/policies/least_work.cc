#include "policies/least_work.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/session_ring.h"

namespace pointsman {
namespace {

// Only the scale of the learnt ratios, which are used relative to their median.
constexpr double kSecondsPerToken = 50e-6;

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void LeastWork::cost(const Context& context, std::span<const ReplicaIndex> candidates,
                     std::span<CostKeys> out) {
  const Features& features = context.features;
  const double prompt = features.prompt_tokens;
  const double shared = std::min(prompt, static_cast<double>(context.shared_blocks) *
                                             static_cast<double>(features.block_tokens));
  const double decode = options_.decode_tokens * options_.routers;
  const ReplicaIndex session_home = home(context, candidates, shared);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ReplicaIndex replica = candidates[i];
    const Load& load = context.ledger[replica];
    const double cached = context.cached_tokens(replica);
    const double u_shared = std::max(0.0, shared - cached);
    double u_private = prompt - cached - u_shared;
    if (replica == session_home) {
      u_private *= 1 - options_.home_trust * context.believed_share(replica);
    }
    const double work = options_.base_tokens + static_cast<double>(load.all_prefill_tokens()) +
                        options_.shared_weight * u_shared + options_.private_weight * u_private +
                        decode * load.in_flight;
    const KvReading reading = live_kv(context, replica);
    double kv = reading.known ? reading.usage : options_.unknown_kv;
    const std::uint64_t capacity = context.kv_capacity(replica);
    if (capacity > 0) kv += prompt / static_cast<double>(capacity);
    const bool speaks = reading.known || context.signals[replica].knows_waiting(context.now);
    const double slow = slowness(replica, context.replicas[replica].weight);
    out[i] = {slow * work + options_.kv_weight * std::max(0.0, kv - options_.kv_knee),
              speaks ? 0.0 : 1.0, static_cast<double>(load.in_flight)};
  }
}

ReplicaIndex LeastWork::home(const Context& context, std::span<const ReplicaIndex> candidates,
                             double shared) const {
  const std::uint64_t session = context.features.session_key;
  if (options_.routers < 2 || options_.home_trust == 0 || session == 0) return kNoReplica;
  for (const ReplicaIndex replica : candidates) {
    if (context.cached_tokens(replica) > shared) return kNoReplica;
  }
  std::array<ReplicaIndex, 1> first{kNoReplica};
  rendezvous(session, candidates, context.replicas, first);
  return context.knows_cache(first[0]) ? kNoReplica : first[0];
}

double LeastWork::slowness(ReplicaIndex replica, double weight) const {
  if (replica < speeds_.size() && speeds_[replica].slowness > 0) return speeds_[replica].slowness;
  return 1 / weight;
}

void LeastWork::picked(const Context& context, ReplicaIndex replica) {
  if (replica >= speeds_.size()) speeds_.resize(context.replicas.size());
  speeds_[replica].weight = context.replicas[replica].weight;
}

void LeastWork::feedback(const Feedback& feedback) {
  if (feedback.event != Feedback::Event::kFirstToken || options_.speed_gain == 0) return;
  if (feedback.replica >= speeds_.size() || feedback.ttft <= Duration::zero()) return;
  const double predicted = kSecondsPerToken * (std::max(options_.base_tokens, 1.0) +
                                               static_cast<double>(feedback.work_ahead));
  const double ratio = to_seconds(feedback.ttft) / predicted;
  Speed& speed = speeds_[feedback.replica];
  ++speed.samples;
  // A plain mean until it has as many samples as the EWMA remembers, so that the first sample does
  // not weigh more than the others.
  const double gain = std::max(options_.speed_gain, 1.0 / speed.samples);
  speed.ratio += gain * (ratio - speed.ratio);
  if (until_settled_ == 0) {
    settle();
  } else {
    --until_settled_;
  }
}

void LeastWork::forget(ReplicaIndex replica) {
  if (replica >= speeds_.size()) return;
  const double weight = speeds_[replica].weight;
  speeds_[replica] = Speed{};
  speeds_[replica].weight = weight;
}

// Learnt ratios → slowness, relative to the median of those that have been learnt. The scale is
// that of the configured weights, so that replicas still at 1/weight compare with the others.
void LeastWork::settle() {
  const auto learnt = [&](const Speed& speed) { return speed.samples >= options_.speed_samples; };
  scratch_.clear();
  for (const Speed& speed : speeds_) {
    if (learnt(speed)) scratch_.push_back(speed.ratio);
  }
  until_settled_ = 8 + static_cast<std::uint32_t>(scratch_.size());
  if (scratch_.empty()) return;
  const double typical = median(scratch_);
  scratch_.clear();
  for (const Speed& speed : speeds_) {
    if (learnt(speed)) scratch_.push_back(1 / speed.weight);
  }
  const double scale = median(scratch_);
  for (Speed& speed : speeds_) {
    if (!learnt(speed)) continue;
    const double relative = speed.ratio / typical;
    const bool ordinary = std::abs(relative - 1) <= options_.speed_dead_band;
    speed.slowness = scale * (ordinary ? 1.0 : relative);
  }
}

}  // namespace pointsman
