#pragma once

#include <algorithm>
#include <string_view>
#include <tuple>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The room left in the replica's queue: 1 − live queue / depth, 0 from `depth` on. The depth is
// stated and not taken from the set of replicas: one long queue must not make all others look
// alike.
//
// Without a fresh reading at most `unknown`, less with each own request in flight: below every
// replica that speaks and has room, and among silent ones by requests in flight.
class QueueRoom final : public Scorer {
 public:
  static constexpr std::string_view kType = "queue_room";
  static constexpr std::string_view kSummary = "room in the queue: 1 - live queue / depth";

  struct Options {
    double depth = 16;
    double unknown = 0.05;

    static constexpr auto fields() {
      return std::tuple{
          Field{"depth", &Options::depth, 1.0, 100'000.0, "live queue at which the score is 0"},
          Field{"unknown", &Options::unknown, 0.0, 1.0,
                "score without a fresh reading, of an idle replica"},
      };
    }
  };

  explicit QueueRoom(const Options& options) : options_(options) {}

  void score(const Context& context, std::span<const ReplicaIndex> candidates,
             std::span<float> out) override {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const ReplicaIndex replica = candidates[i];
      const double room = context.signals[replica].knows_waiting(context.now)
                              ? std::max(0.0, 1 - live_queue(context, replica) / options_.depth)
                              : options_.unknown / (1 + context.ledger[replica].in_flight);
      out[i] = static_cast<float>(room);
    }
  }

 private:
  Options options_;
};

}  // namespace pointsman
