#include "policies/round_robin.h"

#include <cmath>
#include <limits>

namespace pointsman {
namespace {

constexpr double kNotMet = std::numeric_limits<double>::quiet_NaN();

}  // namespace

std::size_t RoundRobin::pick(Context& context, std::span<const ReplicaIndex> candidates,
                             const Ranking&, std::span<ReplicaIndex> order) {
  if (credits_.size() < context.replicas.size()) credits_.resize(context.replicas.size(), kNotMet);
  double total = 0;
  std::size_t count = 0;  // order[0, count) are the greatest credits so far, greatest first
  for (const ReplicaIndex replica : candidates) {
    const double weight = context.replicas[replica].weight;
    total += weight;
    double& credit = credits_[replica];
    credit = std::isnan(credit) ? context.rng.unit() * weight : credit + weight;
    if (count == order.size() && credit <= credits_[order[count - 1]]) continue;
    std::size_t at = count < order.size() ? count++ : count - 1;
    for (; at > 0 && credit > credits_[order[at - 1]]; --at) order[at] = order[at - 1];
    order[at] = replica;
  }
  credits_[order[0]] -= total;
  return count;
}

void RoundRobin::forget(ReplicaIndex replica) {
  if (replica < credits_.size()) credits_[replica] = kNotMet;
}

}  // namespace pointsman
