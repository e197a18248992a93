#pragma once

#include <string_view>

#include "core/context.h"
#include "core/options.h"
#include "core/stage.h"

namespace pointsman {

// The share of the prompt's tokens that the replica is believed to hold, in [0, 1].
class PrefixHit final : public Scorer {
 public:
  static constexpr std::string_view kType = "prefix_hit";
  static constexpr std::string_view kSummary = "share of the prompt believed to be cached there";

  using Options = NoOptions;

  explicit PrefixHit(const Options&) {}

  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = true}; }

  void score(const Context& context, std::span<const ReplicaIndex> candidates,
             std::span<float> out) override {
    const auto prompt = static_cast<float>(context.features.prompt_tokens);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      out[i] =
          prompt == 0 ? 0.0F : static_cast<float>(context.cached_tokens(candidates[i])) / prompt;
    }
  }
};

}  // namespace pointsman
