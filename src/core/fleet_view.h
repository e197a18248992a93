#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/replica.h"

namespace pointsman {

enum class PoolPurpose : std::uint8_t { kGeneral, kLongContext, kLongGeneration };

// One pool's replicas that may be given new requests.
struct PoolView {
  std::string name;
  PoolPurpose purpose = PoolPurpose::kGeneral;
  std::vector<ReplicaIndex> usable;
  // Per model named by at least one replica's list: the usable replicas that serve it, those that
  // gave no list (or whose list means nothing, as llama.cpp's) included. Sorted by name. Empty
  // while all replicas serve the same.
  std::vector<std::pair<std::string, std::vector<ReplicaIndex>>> by_model;
  // The usable replicas without a meaningful list: where a model that nobody names may be served.
  std::vector<ReplicaIndex> any_model;

  // The usable replicas for `model`; for an empty name all of them.
  [[nodiscard]] std::span<const ReplicaIndex> candidates(std::string_view model) const {
    if (model.empty() || by_model.empty()) return usable;
    const auto at = std::lower_bound(
        by_model.begin(), by_model.end(), model,
        [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    if (at != by_model.end() && at->first == model) return at->second;
    return any_model;
  }
};

// All replicas and pools at one moment. Immutable once published; a host keeps its copy until the
// generation has moved.
struct FleetView {
  std::uint64_t generation = 0;
  std::vector<Replica> replicas;  // by ReplicaIndex; removed replicas stay as unusable entries
  std::vector<PoolView> pools;    // by PoolIndex
};

}  // namespace pointsman
