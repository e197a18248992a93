#pragma once

#include <algorithm>
#include <string_view>

#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The candidates in the order in which the sampler named them.
class InOrder final : public Picker {
 public:
  static constexpr std::string_view kType = "in_order";
  static constexpr std::string_view kSummary = "the candidates in the sampler's order";

  using Options = NoOptions;

  explicit InOrder(const Options&) {}

  std::size_t pick(Context&, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    const std::size_t count = std::min(candidates.size(), order.size());
    std::copy_n(candidates.begin(), count, order.begin());
    return count;
  }
};

}  // namespace pointsman
