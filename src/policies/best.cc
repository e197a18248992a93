#include "policies/best.h"

#include <algorithm>
#include <array>

#include "core/decision.h"

namespace pointsman {
namespace {

// The first few of a walk over all places, in the order of `before`. Equal ones stay in the order
// in which they were met, so a walk that starts anywhere makes no replica everybody's second
// choice.
class Leaders {
 public:
  static constexpr std::size_t kMost = Decision::kMaxReplicas;

  template <typename Before>
  void offer(std::uint32_t place, const Before& before) {
    if (count_ == kMost && !before(place, places_[kMost - 1])) return;
    insert(place, before);
  }
  template <typename Before>
  void insert(std::uint32_t place, const Before& before) {
    std::size_t at = count_ < kMost ? count_++ : kMost - 1;
    for (; at > 0 && before(place, places_[at - 1]); --at) places_[at] = places_[at - 1];
    places_[at] = place;
  }

  // The winner, then the leaders without it.
  std::size_t write(std::uint32_t winner, std::span<const ReplicaIndex> candidates,
                    std::span<ReplicaIndex> order) const {
    std::size_t written = 0;
    order[written++] = candidates[winner];
    for (std::size_t i = 0; i < count_ && written < order.size(); ++i) {
      if (places_[i] != winner) order[written++] = candidates[places_[i]];
    }
    return written;
  }

  [[nodiscard]] std::uint32_t first() const { return places_[0]; }

 private:
  std::array<std::uint32_t, kMost> places_{};
  std::size_t count_ = 0;
};

// Visits [0, size) from `start` on, around the end.
template <typename Visit>
void walk_from(std::uint32_t start, std::uint32_t size, Visit&& visit) {
  for (std::uint32_t i = start; i < size; ++i) visit(i);
  for (std::uint32_t i = 0; i < start; ++i) visit(i);
}

}  // namespace

template <typename Level>
void Best::collect_level(std::uint32_t size, Level&& level) {
  if (level_.size() < size) level_.resize(size);
  // Written always and kept if level: no branch to guess.
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    level_[count] = i;
    count += level(i) ? 1 : 0;
  }
  level_.resize(count);
}

std::size_t Best::pick(Context& context, std::span<const ReplicaIndex> candidates,
                       const Ranking& ranking, std::span<ReplicaIndex> order) {
  const auto size = static_cast<std::uint32_t>(candidates.size());
  const auto start = static_cast<std::uint32_t>(context.rng.below(size));
  Leaders leaders;
  level_.clear();
  if (!ranking.costs.empty()) {
    const std::span<const CostKeys> costs = ranking.costs;
    // For fall-backs two keys are enough.
    const auto cheaper = [&](std::uint32_t a, std::uint32_t b) {
      return costs[a][0] < costs[b][0] || (costs[a][0] == costs[b][0] && costs[a][1] < costs[b][1]);
    };
    walk_from(start, size, [&](std::uint32_t i) { leaders.offer(i, cheaper); });
    double band = costs[leaders.first()][0] + ranking.tolerance[0];
    collect_level(size, [&](std::uint32_t i) { return costs[i][0] <= band; });
    for (std::size_t key = 1; key < kCostKeys && level_.size() > 1; ++key) {
      double lowest = costs[level_[0]][key];
      for (const std::uint32_t i : level_) lowest = std::min(lowest, costs[i][key]);
      band = lowest + ranking.tolerance[key];
      std::erase_if(level_, [&](std::uint32_t i) { return costs[i][key] > band; });
    }
  } else if (!ranking.scores.empty()) {
    const std::span<const float> scores = ranking.scores;
    const auto better = [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; };
    walk_from(start, size, [&](std::uint32_t i) { leaders.offer(i, better); });
    const float highest = scores[leaders.first()];
    collect_level(size, [&](std::uint32_t i) { return scores[i] == highest; });
  } else {
    // All are level: the walk's start is as good as any.
    for (std::uint32_t i = 0; i < std::min<std::size_t>(size, Leaders::kMost); ++i) {
      leaders.offer((start + i) % size, [](std::uint32_t, std::uint32_t) { return false; });
    }
    return leaders.write(start, candidates, order);
  }
  const std::uint32_t winner =
      level_.size() == 1 ? level_[0] : level_[context.rng.below(level_.size())];
  return leaders.write(winner, candidates, order);
}

}  // namespace pointsman
