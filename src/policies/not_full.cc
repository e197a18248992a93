#include "policies/not_full.h"

namespace pointsman {

void NotFull::apply(Context& context, Candidates& candidates) {
  const auto full = [&](ReplicaIndex replica) {
    const Signals& signals = context.signals[replica];
    if (!signals.fresh(context.now)) return false;
    if (signals.waiting >= context.limits.queue) return true;  // false where it is not known
    return kv_full(context, replica);
  };
  // Nobody full is the ordinary case; then the list stays as it is, uncopied.
  bool any = false;
  for (const ReplicaIndex replica : candidates.view()) {
    if (full(replica)) {
      any = true;
      break;
    }
  }
  if (!any) return;
  if (!candidates.narrow([&](ReplicaIndex replica) { return !full(replica); })) {
    context.reason = Reason::kAllSaturated;
  }
}

}  // namespace pointsman
