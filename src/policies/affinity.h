#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/context.h"
#include "core/features.h"

namespace pointsman {

// What a request wants to stay near: its session, else the beginning of its prompt; 0: nothing.
[[nodiscard]] inline std::uint64_t affinity_key(const Features& features) {
  if (features.session_key != 0) return features.session_key;
  return features.blocks.empty() ? 0 : features.blocks.front();
}

// Whether `replica` is among the candidates. Hosts list replicas in ascending order, so the binary
// search finds those that are there; only an absent one, or a list in another order, costs a walk.
[[nodiscard]] inline bool is_candidate(std::span<const ReplicaIndex> candidates,
                                       ReplicaIndex replica) {
  const auto at = std::lower_bound(candidates.begin(), candidates.end(), replica);
  if (at != candidates.end() && *at == replica) return true;
  return std::find(candidates.begin(), candidates.end(), replica) != candidates.end();
}

}  // namespace pointsman
