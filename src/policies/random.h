#pragma once

#include <string_view>

#include "core/options.h"
#include "core/stage.h"
#include "policies/draw.h"

namespace pointsman {

// Any candidate, with a probability in proportion to its weight.
class Random final : public Picker {
 public:
  static constexpr std::string_view kType = "random";
  static constexpr std::string_view kSummary = "by chance, in proportion to weight";

  using Options = NoOptions;

  explicit Random(const Options&) {}

  std::size_t pick(Context& context, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override;

 private:
  Draw draw_;
};

}  // namespace pointsman
