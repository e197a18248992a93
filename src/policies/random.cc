#include "policies/random.h"

#include <algorithm>

namespace pointsman {

std::size_t Random::pick(Context& context, std::span<const ReplicaIndex> candidates, const Ranking&,
                         std::span<ReplicaIndex> order) {
  // Drawing as many as there are would leave them in their own order, so the last place stays out.
  const std::size_t wanted = std::min(order.size(), candidates.size() - 1);
  if (wanted == 0) {
    order[0] = candidates[0];
    return 1;
  }
  const std::span<const ReplicaIndex> drawn = draw_(context, candidates, wanted, Draw::From::kAll);
  std::copy(drawn.begin(), drawn.end(), order.begin());
  return drawn.size();
}

}  // namespace pointsman
