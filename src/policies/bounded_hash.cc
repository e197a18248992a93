#include "policies/bounded_hash.h"

#include <array>
#include <cmath>

#include "core/decision.h"
#include "policies/affinity.h"

namespace pointsman {

template <typename Table>
void BoundedHash<Table>::sample(Context& context, Candidates& candidates) {
  const std::uint64_t key = affinity_key(context.features);
  double in_flight = 1;
  double weight = 0;
  for (const ReplicaIndex replica : candidates.view()) {
    in_flight += context.ledger[replica].in_flight;
    weight += context.replicas[replica].weight;
  }
  const double per_weight = options_.balance * in_flight / weight;
  const auto has_room = [&](ReplicaIndex replica) {
    if (options_.balance == 0) return true;
    const double bound = std::ceil(per_weight * context.replicas[replica].weight);
    return context.ledger[replica].in_flight + 1 <= bound;
  };

  // The first with room, then those after it as fall-backs; those passed over are named only if
  // nobody has room, which takes a balance below 1.
  std::array<ReplicaIndex, Decision::kMaxReplicas> order{};
  std::size_t count = 0;
  ReplicaIndex home = kNoReplica;
  Table& table = tables_.find(candidates.view(), context.replicas);
  table.walk(key == 0 ? context.rng() : key, [&](ReplicaIndex replica) {
    if (home == kNoReplica) home = replica;
    if (has_room(replica)) order[count++] = replica;
    return count == order.size();
  });
  if (home == kNoReplica) return;
  if (count == 0) order[count++] = home;
  if (key != 0) context.reason = order[0] == home ? Reason::kSession : Reason::kValve;
  candidates.assign(std::span(order).first(count));
}

template class BoundedHash<HashRing>;
template class BoundedHash<MaglevTable>;

}  // namespace pointsman
