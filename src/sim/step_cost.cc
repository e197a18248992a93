#include "sim/step_cost.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pointsman::sim {
namespace {

std::int64_t picoseconds(double seconds) {
  return std::llround(seconds * 1e12);
}

}  // namespace

StepCost::StepCost(const EngineConfig& config, double factor)
    : step_ps_(picoseconds(config.step_s * factor)),
      weights_ps_(picoseconds(config.weights_s * factor)),
      token_ps_(picoseconds(config.token_s * factor)),
      context_ps_(picoseconds(config.context_s * factor)),
      sequence_ps_(picoseconds(config.sequence_s * factor)),
      pair_ps_(picoseconds(config.token_s * config.attention_ratio * factor)) {
  assert(factor > 0);
}

EngineTime StepCost::of(const StepWork& work) const {
  const std::int64_t compute = token_ps_ * static_cast<std::int64_t>(work.tokens);
  return EngineTime(step_ps_ + std::max(weights_ps_, compute) +
                    context_ps_ * static_cast<std::int64_t>(work.decode_context) +
                    sequence_ps_ * static_cast<std::int64_t>(work.sequences) +
                    pair_ps_ * static_cast<std::int64_t>(work.prefill_pairs));
}

EngineTime StepCost::growth(std::uint64_t sequences) const {
  return EngineTime(context_ps_ * static_cast<std::int64_t>(sequences));
}

double longest_step_seconds(const EngineConfig& config) {
  const double tokens = config.max_num_batched_tokens;
  const auto context = static_cast<double>(config.capacity_tokens());
  return config.step_s + std::max(config.weights_s, config.token_s * tokens) +
         config.context_s * context + config.sequence_s * config.max_num_seqs +
         config.token_s * config.attention_ratio * tokens * context;
}

}  // namespace pointsman::sim
