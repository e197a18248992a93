#pragma once

#include <string_view>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The cost of a replica is its requests in flight, as this router counts them, over its weight.
class InFlight final : public CostScorer {
 public:
  static constexpr std::string_view kType = "in_flight";
  static constexpr std::string_view kSummary = "requests in flight over weight";

  using Options = NoOptions;

  explicit InFlight(const Options&) {}

  void cost(const Context& context, std::span<const ReplicaIndex> candidates,
            std::span<CostKeys> out) override {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const ReplicaIndex replica = candidates[i];
      out[i] = {context.ledger[replica].in_flight / context.replicas[replica].weight};
    }
  }
};

}  // namespace pointsman
