#pragma once

#include <string_view>
#include <vector>

#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// Each candidate in turn, in proportion to weight, spread evenly over the turn (the smooth weighted
// round robin of nginx): every candidate's credit grows by its weight, the greatest credit wins and
// pays the sum of all weights. Credits start by chance, so that several routers do not march in
// step.
class RoundRobin final : public Picker {
 public:
  static constexpr std::string_view kType = "round_robin";
  static constexpr std::string_view kSummary = "each in turn, in proportion to weight";

  using Options = NoOptions;

  explicit RoundRobin(const Options&) {}

  std::size_t pick(Context& context, std::span<const ReplicaIndex> candidates,
                   const Ranking& ranking, std::span<ReplicaIndex> order) override;
  void forget(ReplicaIndex replica) override;

 private:
  std::vector<double> credits_;  // by ReplicaIndex; NaN: not met yet
};

}  // namespace pointsman
