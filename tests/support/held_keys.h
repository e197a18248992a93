#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "kv_events/engine_blocks.h"

namespace pointsman::test {

// What a stream's changes add up to: the keys held in each tier.
class HeldKeys : public CacheChanges {
 public:
  void store(Tier tier, std::optional<BlockHash>, std::span<const BlockHash> keys,
             std::vector<BlockHash>& again) override {
    for (const BlockHash key : keys) {
      if (!of(tier).insert(key).second) again.push_back(key);
    }
  }
  void remove(Tier tier, std::span<const BlockHash> keys, bool) override {
    for (const BlockHash key : keys) of(tier).erase(key);
  }
  void clear() override {
    for (auto& keys : tiers_) keys.clear();
  }

  [[nodiscard]] bool holds(BlockHash key, Tier tier = Tier::kGpu) const {
    return tiers_[static_cast<std::size_t>(tier)].contains(key);
  }
  [[nodiscard]] const std::set<BlockHash>& all(Tier tier = Tier::kGpu) const {
    return tiers_[static_cast<std::size_t>(tier)];
  }
  // How many keys of the chain are held one after the other, from the first on.
  [[nodiscard]] std::size_t leading(std::span<const BlockHash> chain) const {
    std::size_t count = 0;
    while (count < chain.size() && holds(chain[count])) ++count;
    return count;
  }

 private:
  std::set<BlockHash>& of(Tier tier) { return tiers_[static_cast<std::size_t>(tier)]; }

  std::array<std::set<BlockHash>, kTiers> tiers_;
};

}  // namespace pointsman::test
