#pragma once

#include <string_view>
#include <tuple>
#include <vector>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The cost of a replica is the peak EWMA of its time to first token, times its requests in flight
// and one. It jumps to a sample that is higher, comes down with the decay time, and fades while
// there is no sample, so that a replica with one bad answer is tried again (after Finagle's "peak
// EWMA" balancer). A replica without a sample counts as a typical one, so that it is neither
// flooded nor starved: among such the requests in flight decide.
//
// Samples come from streams only; a fleet that serves plain answers alone is balanced by requests
// in flight.
class PeakEwma final : public CostScorer {
 public:
  static constexpr std::string_view kType = "peak_ewma";
  static constexpr std::string_view kSummary =
      "peak EWMA of time to first token, times requests in flight and one";

  struct Options {
    double decay_s = 10;

    static constexpr auto fields() {
      return std::tuple{
          Field{"decay_s", &Options::decay_s, 0.1, 3'600.0,
                "seconds in which a sample loses all but 37 % of its weight"},
      };
    }
  };

  explicit PeakEwma(const Options& options) : options_(options) {}

  void cost(const Context& context, std::span<const ReplicaIndex> candidates,
            std::span<CostKeys> out) override;
  void feedback(const Feedback& feedback) override;
  void forget(ReplicaIndex replica) override;

 private:
  struct Reading {
    // The EWMA in seconds, times the growth from base_ to its last sample: every reading fades at
    // the same rate, so that scaled readings compare as the faded ones do, without an exponential
    // each.
    double scaled = 0;
    TimePoint sampled_at{};  // TimePoint{}: no sample
  };

  [[nodiscard]] double growth(TimePoint from, TimePoint to) const;
  void rebase(TimePoint now);

  Options options_;
  std::vector<Reading> readings_;  // by ReplicaIndex
  TimePoint base_{};
  double typical_s_ = 0;  // of all replicas; 0: no sample yet
};

}  // namespace pointsman
