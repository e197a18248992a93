#include "policies/sample.h"

#include <algorithm>

#include "policies/affinity.h"

namespace pointsman {

void Sample::sample(Context& context, Candidates& candidates) {
  if (options_.choices == 0 || candidates.size() <= options_.choices) {
    if (options_.avoid_saturated &&
        !candidates.narrow([&](ReplicaIndex replica) { return !saturated(context, replica); })) {
      context.reason = Reason::kAllSaturated;
    }
    return;
  }
  const Draw::From from = options_.avoid_saturated ? Draw::From::kUnsaturated : Draw::From::kAll;
  const std::span<const ReplicaIndex> drawn =
      draw_(context, candidates.view(), options_.choices, from);
  if (drawn.empty()) {
    context.reason = Reason::kAllSaturated;
    return;
  }
  chosen_.assign(drawn.begin(), drawn.end());
  if (options_.keep_holder) {
    const PrefixMatches::Holder* longest = nullptr;
    for (const PrefixMatches::Holder& holder : context.holders) {
      if ((longest == nullptr || holder.blocks > longest->blocks) &&
          is_candidate(candidates.view(), holder.replica)) {
        longest = &holder;
      }
    }
    if (longest != nullptr &&
        std::find(chosen_.begin(), chosen_.end(), longest->replica) == chosen_.end()) {
      chosen_.push_back(longest->replica);
    }
  }
  candidates.assign(chosen_);
}

}  // namespace pointsman
