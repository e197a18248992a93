#include "policies/session_home.h"

#include <array>

#include "core/session_ring.h"
#include "policies/affinity.h"

namespace pointsman {

void SessionHome::sample(Context& context, Candidates& candidates) {
  const std::uint64_t key = affinity_key(context.features);
  if (key != 0) {
    std::array<ReplicaIndex, 1> home{};
    rendezvous(key, candidates.view(), context.replicas, home);
    if (!saturated(context, home[0])) {
      context.reason = Reason::kSession;
      candidates.assign(home);
      return;
    }
    context.reason = Reason::kValve;
  }
  draw_.narrow(context, candidates, options_.choices);
}

}  // namespace pointsman
