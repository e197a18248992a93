#include "policies/least_kv.h"

#include <algorithm>

namespace pointsman {
namespace {

// The first key.
constexpr double kFresh = 0;
constexpr double kNoReading = 1;
constexpr double kSaturated = 2;

}  // namespace

void LeastKv::cost(const Context& context, std::span<const ReplicaIndex> candidates,
                   std::span<CostKeys> out) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ReplicaIndex replica = candidates[i];
    const Load& load = context.ledger[replica];
    const KvReading live = live_kv(context, replica);
    const KvReading kv = options_.live ? live : reported_kv(context, replica);
    const double queue = live_queue(context, replica);
    const double standing =
        saturated(context, replica, live, queue) ? kSaturated : (kv.known ? kFresh : kNoReading);
    // Among saturated replicas one that says nothing counts as full.
    const double usage = kv.known ? kv.usage : (standing == kSaturated ? 1.0 : 0.0);
    // Where there is no reading, nothing but requests is compared.
    const double tokens = standing == kNoReading ? 0.0 : static_cast<double>(load.prompt_tokens);
    // Beyond saturation the least used comes before chance: every per cent counts there.
    const double last = standing == kSaturated ? std::min(usage, 1.0) / 2 : 0.0;
    out[i] = {standing, usage, queue, tokens, load.in_flight + last};
  }
}

}  // namespace pointsman
