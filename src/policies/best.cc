#include "policies/best.h"

#include <algorithm>
#include <array>

#include "core/decision.h"

namespace pointsman {
namespace {

// Fills order[1...] with the next best after the winner, comparing with `before`. Equal ones come
// in the order of a walk that starts anywhere, so that no replica is everybody's second choice.
template <typename Before>
std::size_t add_fallbacks(Rng& rng, std::span<const ReplicaIndex> candidates, std::size_t winner,
                          std::span<ReplicaIndex> order, Before&& before) {
  std::array<std::size_t, Decision::kMaxReplicas> next{};
  const std::size_t room = std::min({order.size(), next.size(), candidates.size()}) - 1;
  order[0] = candidates[winner];
  if (room == 0) return 1;
  std::size_t count = 0;
  const std::size_t start = rng.below(candidates.size());
  for (std::size_t step = 0; step < candidates.size(); ++step) {
    const std::size_t i =
        start + step < candidates.size() ? start + step : start + step - candidates.size();
    if (i == winner) continue;
    if (count == room && !before(i, next[count - 1])) continue;
    std::size_t at = count < room ? count++ : count - 1;
    for (; at > 0 && before(i, next[at - 1]); --at) next[at] = next[at - 1];
    next[at] = i;
  }
  for (std::size_t i = 0; i < count; ++i) order[1 + i] = candidates[next[i]];
  return 1 + count;
}

}  // namespace

std::size_t Best::pick(Context& context, std::span<const ReplicaIndex> candidates,
                       const Ranking& ranking, std::span<ReplicaIndex> order) {
  level_.clear();
  if (!ranking.costs.empty()) {
    const std::span<const CostKeys> costs = ranking.costs;
    double lowest = costs[0][0];
    for (const CostKeys& cost : costs) lowest = std::min(lowest, cost[0]);
    const double first_band = lowest + ranking.tolerance[0];
    for (std::uint32_t i = 0; i < costs.size(); ++i) {
      if (costs[i][0] <= first_band) level_.push_back(i);
    }
    for (std::size_t key = 1; key < kCostKeys && level_.size() > 1; ++key) {
      lowest = costs[level_[0]][key];
      for (const std::uint32_t i : level_) lowest = std::min(lowest, costs[i][key]);
      const double band = lowest + ranking.tolerance[key];
      std::erase_if(level_, [&](std::uint32_t i) { return costs[i][key] > band; });
    }
  } else if (!ranking.scores.empty()) {
    const std::span<const float> scores = ranking.scores;
    const float highest = *std::max_element(scores.begin(), scores.end());
    for (std::uint32_t i = 0; i < scores.size(); ++i) {
      if (scores[i] == highest) level_.push_back(i);
    }
  }
  // Without scores and costs all are level.
  std::size_t winner = 0;
  if (level_.empty()) {
    winner = context.rng.below(candidates.size());
  } else {
    winner = level_.size() == 1 ? level_[0] : level_[context.rng.below(level_.size())];
  }
  return add_fallbacks(context.rng, candidates, winner, order, [&](std::size_t a, std::size_t b) {
    if (!ranking.costs.empty()) return ranking.costs[a] < ranking.costs[b];
    return !ranking.scores.empty() && ranking.scores[a] > ranking.scores[b];
  });
}

}  // namespace pointsman
