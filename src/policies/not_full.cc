#include "policies/not_full.h"

namespace pointsman {

void NotFull::apply(Context& context, Candidates& candidates) {
  const auto full = [&](ReplicaIndex replica) {
    const Signals& signals = context.signals[replica];
    if (!signals.fresh(context.now)) return false;
    if (signals.waiting >= context.limits.queue) return true;  // false where it is not known
    return kv_full(context, live_kv(context, replica));
  };
  if (!candidates.narrow([&](ReplicaIndex replica) { return !full(replica); })) {
    context.reason = Reason::kAllSaturated;
  }
}

}  // namespace pointsman
