#include "policies/draw.h"

#include <algorithm>

namespace pointsman {
namespace {

constexpr std::size_t kTriesPerReplica = 8;

}  // namespace

std::span<const ReplicaIndex> Draw::operator()(Context& context,
                                               std::span<const ReplicaIndex> candidates,
                                               std::size_t count, From from) {
  drawn_.clear();
  if (candidates.size() <= count) {
    for (const ReplicaIndex replica : candidates) take(context, replica, from);
    return drawn_;
  }
  if (until_refresh_ == 0) refresh_bound(context, candidates);
  --until_refresh_;
  for (std::size_t tries = kTriesPerReplica * (count + 1); tries > 0; --tries) {
    const ReplicaIndex replica = candidates[context.rng.below(candidates.size())];
    const double weight = context.replicas[replica].weight;
    if (weight > bound_) bound_ = weight;
    if (weight < bound_ && context.rng.unit() * bound_ >= weight) continue;
    if (take(context, replica, from) && drawn_.size() == count) return drawn_;
  }
  draw_from_scan(context, candidates, count, from);
  return drawn_;
}

void Draw::narrow(Context& context, Candidates& candidates, std::size_t count) {
  const std::span<const ReplicaIndex> drawn =
      (*this)(context, candidates.view(), count, From::kUnsaturated);
  if (drawn.empty()) {
    context.reason = Reason::kAllSaturated;
  } else {
    candidates.assign(drawn);
  }
}

bool Draw::take(Context& context, ReplicaIndex replica, From from) {
  if (std::find(drawn_.begin(), drawn_.end(), replica) != drawn_.end()) return false;
  if (from == From::kUnsaturated && saturated(context, replica)) return false;
  drawn_.push_back(replica);
  return true;
}

void Draw::draw_from_scan(Context& context, std::span<const ReplicaIndex> candidates,
                          std::size_t count, From from) {
  const std::size_t before = drawn_.size();
  for (const ReplicaIndex replica : candidates) take(context, replica, from);
  rest_.assign(drawn_.begin() + static_cast<std::ptrdiff_t>(before), drawn_.end());
  drawn_.resize(before);
  while (drawn_.size() < count && !rest_.empty()) {
    double total = 0;
    for (const ReplicaIndex replica : rest_) total += context.replicas[replica].weight;
    double point = context.rng.unit() * total;
    std::size_t i = 0;
    while (i + 1 < rest_.size() && point >= context.replicas[rest_[i]].weight) {
      point -= context.replicas[rest_[i]].weight;
      ++i;
    }
    drawn_.push_back(rest_[i]);
    rest_.erase(rest_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  refresh_bound(context, candidates);
}

void Draw::refresh_bound(const Context& context, std::span<const ReplicaIndex> candidates) {
  bound_ = 0;
  for (const ReplicaIndex replica : candidates) {
    bound_ = std::max(bound_, context.replicas[replica].weight);
  }
  until_refresh_ = std::max<std::size_t>(256, candidates.size());
  // A scan, when it comes, allocates nothing.
  drawn_.reserve(candidates.size());
  rest_.reserve(candidates.size());
}

}  // namespace pointsman
