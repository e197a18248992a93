#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "core/engine_caches.h"
#include "core/features.h"
#include "kv_events/block_table.h"

namespace pointsman {

// How many blocks of an engine stand for one key, of the keys that several stand for. Where the
// engine's blocks are longer than the router's, two prompts that part within one of the engine's
// blocks have the router's keys before that place in common.
//
// What the budget has no room for is not counted: such a key is gone with the first of its blocks.
// Not thread-safe.
class SharedKeys {
 public:
  explicit SharedKeys(TableBudget& budget) : budget_(budget) {}
  ~SharedKeys() { clear(); }
  SharedKeys(const SharedKeys&) = delete;
  SharedKeys& operator=(const SharedKeys&) = delete;

  // One more block stands for each of the keys, which were held already.
  void add(Tier tier, std::span<const BlockHash> keys) {
    auto& counts = tiers_[static_cast<std::size_t>(tier)];
    for (const BlockHash key : keys) {
      const auto found = counts.find(key);
      if (found != counts.end()) {
        ++found->second;
      } else if (budget_.used + kEntryBytes <= budget_.max_bytes) {
        counts.emplace(key, 1);
        budget_.used += kEntryBytes;
      }
    }
  }

  // One block fewer stands for the key. False: it was the only one.
  bool take(Tier tier, BlockHash key) {
    auto& counts = tiers_[static_cast<std::size_t>(tier)];
    const auto found = counts.empty() ? counts.end() : counts.find(key);
    if (found == counts.end()) return false;
    if (--found->second == 0) {
      counts.erase(found);
      budget_.used -= kEntryBytes;
    }
    return true;
  }

  void clear() {
    budget_.used -= bytes();
    for (auto& counts : tiers_) counts.clear();
  }

  [[nodiscard]] std::size_t bytes() const {
    std::size_t entries = 0;
    for (const auto& counts : tiers_) entries += counts.size();
    return entries * kEntryBytes;
  }

 private:
  static constexpr std::size_t kEntryBytes = 56;  // with its node and its part of the buckets

  TableBudget& budget_;
  // Blocks beside the first one; by tier.
  std::array<std::unordered_map<BlockHash, std::uint32_t>, kTiers> tiers_;
};

}  // namespace pointsman
