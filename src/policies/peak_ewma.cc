#include "policies/peak_ewma.h"

#include <cmath>

namespace pointsman {
namespace {

constexpr double kTypicalGain = 0.05;
// Beyond this many decay times the scaled readings are brought down, long before they overflow.
constexpr double kMostDecays = 100;

}  // namespace

void PeakEwma::cost(const Context& context, std::span<const ReplicaIndex> candidates,
                    std::span<CostKeys> out) {
  if (typical_s_ == 0) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const ReplicaIndex replica = candidates[i];
      out[i] = {context.ledger[replica].in_flight / context.replicas[replica].weight};
    }
    return;
  }
  if (to_seconds(context.now - base_) > kMostDecays * options_.decay_s) rebase(context.now);
  // A replica without a sample is compared as if a typical one had just been taken.
  const double unknown = typical_s_ * growth(base_, context.now);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ReplicaIndex replica = candidates[i];
    const bool known = replica < readings_.size() && readings_[replica].sampled_at != TimePoint{};
    const double in_flight = context.ledger[replica].in_flight / context.replicas[replica].weight;
    out[i] = {(known ? readings_[replica].scaled : unknown) * (in_flight + 1), in_flight};
  }
}

void PeakEwma::feedback(const Feedback& feedback) {
  if (feedback.event != Feedback::Event::kFirstToken || feedback.ttft <= Duration::zero()) return;
  const double sample = to_seconds(feedback.ttft);
  if (typical_s_ == 0) {
    typical_s_ = sample;
    base_ = feedback.now;
  } else {
    typical_s_ += kTypicalGain * (sample - typical_s_);
  }
  if (to_seconds(feedback.now - base_) > kMostDecays * options_.decay_s) rebase(feedback.now);

  if (feedback.replica >= readings_.size()) {
    readings_.resize(std::size_t{feedback.replica} + 1);
  }
  Reading& reading = readings_[feedback.replica];
  const double scale = growth(base_, feedback.now);
  double value = sample;
  if (reading.sampled_at != TimePoint{}) {
    // What the reading was, unfaded, at its last sample, and how much of that remains.
    const double before = reading.scaled / growth(base_, reading.sampled_at);
    const double kept = growth(feedback.now, reading.sampled_at);
    if (sample < before) value = before * kept + sample * (1 - kept);
  }
  reading.scaled = value * scale;
  reading.sampled_at = feedback.now;
}

void PeakEwma::forget(ReplicaIndex replica) {
  if (replica < readings_.size()) readings_[replica] = Reading{};
}

double PeakEwma::growth(TimePoint from, TimePoint to) const {
  return std::exp(to_seconds(to - from) / options_.decay_s);
}

void PeakEwma::rebase(TimePoint now) {
  const double factor = growth(now, base_);
  for (Reading& reading : readings_) reading.scaled *= factor;
  base_ = now;
}

}  // namespace pointsman
