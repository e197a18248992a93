#include "core/context.h"

#include <algorithm>

namespace pointsman {
namespace {

const Signals& signals_of(const Context& context, ReplicaIndex replica) {
  static constexpr Signals kNone;
  return replica < context.signals.size() ? context.signals[replica] : kNone;
}

}  // namespace

std::uint32_t Context::cached_tokens(ReplicaIndex replica) const {
  if (replica >= matched_blocks.size() || features.prompt_tokens == 0) return 0;
  const std::uint64_t block = std::max<std::uint32_t>(features.block_tokens, 1);
  const std::uint64_t most = (features.prompt_tokens - 1) / block * block;
  return static_cast<std::uint32_t>(std::min(matched_blocks[replica] * block, most));
}

KvReading reported_kv(const Context& context, ReplicaIndex replica) {
  const Signals& signals = signals_of(context, replica);
  if (!signals.knows_kv(context.now)) return {};
  return {true, signals.kv_usage};
}

KvReading live_kv(const Context& context, ReplicaIndex replica) {
  KvReading reading = reported_kv(context, replica);
  if (!reading.known) return reading;
  const Signals& signals = signals_of(context, replica);
  if (signals.kv_capacity_tokens > 0) {
    reading.usage +=
        static_cast<double>(context.ledger.prompt_tokens_since(replica, signals.window)) /
        static_cast<double>(signals.kv_capacity_tokens);
  }
  return reading;
}

double live_queue(const Context& context, ReplicaIndex replica) {
  const double own = context.ledger[replica].awaiting;
  const Signals& signals = signals_of(context, replica);
  if (!signals.knows_waiting(context.now)) return own;
  return std::max(own, static_cast<double>(signals.waiting) +
                           context.ledger.awaiting_since(replica, signals.window));
}

bool kv_full(const Context& context, ReplicaIndex replica) {
  const KvReading kv = live_kv(context, replica);
  // As floats, as readings are reported: 0.9 is not below 0.9.
  return kv.known && static_cast<float>(kv.usage) >= static_cast<float>(context.limits.kv);
}

bool saturated(const Context& context, ReplicaIndex replica) {
  const SaturationLimits& limits = context.limits;
  const double prompt = context.features.prompt_tokens;
  if (static_cast<double>(context.ledger[replica].prefill_tokens) >=
      std::max(limits.prefill_tokens, prompt)) {
    return true;
  }
  if (live_queue(context, replica) >= limits.queue) return true;
  return kv_full(context, replica);
}

}  // namespace pointsman
