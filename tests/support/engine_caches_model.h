#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/engine_caches.h"

namespace pointsman::test {

// The plain truth that EngineCaches tells: a set of blocks for each replica, rank and tier.
class NaiveEngineCaches {
 public:
  using Answer = std::map<ReplicaIndex, std::pair<std::uint32_t, std::uint32_t>>;

  explicit NaiveEngineCaches(const std::array<double, kTiers>& worth) : worth_(worth) {}

  void store(const EngineCache& cache, std::span<const BlockHash> blocks) {
    auto& held = held_[{cache.replica, cache.rank}][static_cast<std::size_t>(cache.tier)];
    held.insert(blocks.begin(), blocks.end());
  }
  void remove(const EngineCache& cache, std::span<const BlockHash> blocks) {
    auto& held = held_[{cache.replica, cache.rank}][static_cast<std::size_t>(cache.tier)];
    for (const BlockHash block : blocks) held.erase(block);
  }
  void clear(ReplicaIndex replica, std::uint16_t rank) { held_.erase({replica, rank}); }
  void forget_blocks(ReplicaIndex replica) {
    std::erase_if(held_, [&](const auto& entry) { return entry.first.first == replica; });
  }

  [[nodiscard]] bool holds(ReplicaIndex replica, std::uint16_t rank, BlockHash block) const {
    const auto tiers = held_.find({replica, rank});
    if (tiers == held_.end()) return false;
    return std::any_of(tiers->second.begin(), tiers->second.end(),
                       [&](const auto& tier) { return tier.contains(block); });
  }

  [[nodiscard]] std::uint64_t blocks(ReplicaIndex replica) const {
    std::uint64_t sum = 0;
    for (const auto& [unit, tiers] : held_) {
      for (const auto& tier : tiers) sum += unit.first == replica ? tier.size() : 0;
    }
    return sum;
  }

  // Of every replica that holds the first block: (blocks by worth, length) of its best rank.
  [[nodiscard]] Answer match(std::span<const BlockHash> chain) const {
    Answer answer;
    for (const auto& [unit, tiers] : held_) {
      double worth = 0;
      std::uint32_t length = 0;
      for (std::size_t level = 0; level < kTiers; ++level) {
        std::uint32_t reach = 0;
        while (reach < chain.size() &&
               std::any_of(
                   tiers.begin(), tiers.begin() + static_cast<std::ptrdiff_t>(level) + 1,
                   [&](const auto& tier) { return tier.contains(chain[reach]); })) {
          ++reach;
        }
        worth += worth_[level] * (reach - length);
        length = reach;
      }
      if (length == 0) continue;
      auto& best = answer[unit.first];
      best.first = std::max(best.first, static_cast<std::uint32_t>(std::floor(worth + 1e-6)));
      best.second = std::max(best.second, length);
    }
    return answer;
  }

 private:
  using Unit = std::pair<ReplicaIndex, std::uint16_t>;
  std::array<double, kTiers> worth_;
  std::map<Unit, std::array<std::set<BlockHash>, kTiers>> held_;
};

// Random calls to EngineCaches and to the naive one beside it, over a tree of chains that share,
// branch and end everywhere. `draw(bound)` gives the next number below `bound`. step() says whether
// all answers were equal.
template <typename Draw>
class EngineCachesTrial {
 public:
  static constexpr ReplicaIndex kReplicas = 5;
  static constexpr std::uint16_t kRanks = 3;

  EngineCachesTrial(const EngineCaches::Options& options, std::size_t fan_out, std::size_t depth,
                    Draw draw)
      : caches(options),
        options_(options),
        truth_(options.worth),
        fan_out_(fan_out),
        depth_(depth),
        draw_(std::move(draw)) {}

  [[nodiscard]] bool step() {
    const std::uint64_t what = draw_(100);
    const auto replica = static_cast<ReplicaIndex>(draw_(kReplicas));
    const auto rank = static_cast<std::uint16_t>(draw_(kRanks));
    const EngineCache cache{replica, rank, static_cast<Tier>(draw_(4) % kTiers)};
    if (what < 45) {
      if (!store(cache)) return false;
    } else if (what < 75) {
      remove(cache);
    } else if (what < 76) {
      caches.clear(replica, rank);
      truth_.clear(replica, rank);
    } else if (what < 77) {
      caches.forget_blocks(replica);
      truth_.forget_blocks(replica);
      shut_out_[replica] = false;
    } else if (what < 78) {
      caches.forget(replica);
      truth_.forget_blocks(replica);
      shut_out_[replica] = trusted_[replica] = false;
    } else if (what < 84) {
      const bool trust = draw_(4) != 0;
      caches.set_trust(replica, trust ? Trust::kTrusted : Trust::kGap);
      trusted_[replica] = trust && !shut_out_[replica];
    }
    if (caches.bytes() > options_.max_bytes) return false;
    if (caches.blocks(replica) != truth_.blocks(replica)) return false;
    return same_answers();
  }

  EngineCaches caches;
  std::uint64_t refused = 0;

 private:
  // A way from the root of the tree; keys stand for whole ways.
  std::vector<BlockHash> chain() {
    std::vector<BlockHash> keys(1 + draw_(depth_));
    BlockHash key = 17;
    for (BlockHash& out : keys) {
      // Most go the same way, so that chains are long and common.
      const std::uint64_t branch = draw_(3) != 0 ? 0 : draw_(fan_out_);
      const BlockHash parent = key;
      key = (key ^ (branch + 1)) * 0x9e3779b97f4a7c15ULL;
      key ^= key >> 29;
      out = key;
      children_[parent].insert(key);
    }
    return keys;
  }

  bool store(const EngineCache& cache) {
    const std::vector<BlockHash> keys = chain();
    std::size_t from = draw_(3) != 0 ? 0 : draw_(keys.size());
    // Engines go on behind what they hold; now and then this one does not.
    while (from > 0 && draw_(8) != 0 && !truth_.holds(cache.replica, cache.rank, keys[from - 1])) {
      --from;
    }
    const auto blocks = std::span(keys).subspan(from);
    const bool stored =
        caches.store(cache, from == 0 ? std::nullopt : std::optional(keys[from - 1]), blocks);
    if (!stored) {
      ++refused;
      truth_.forget_blocks(cache.replica);
      shut_out_[cache.replica] = true;
      trusted_[cache.replica] = false;
      return true;
    }
    if (shut_out_[cache.replica]) return false;
    truth_.store(cache, blocks);
    return true;
  }

  void remove(const EngineCache& cache) {
    std::vector<BlockHash> keys = chain();
    const std::size_t from = draw_(keys.size());
    const auto blocks = std::span(keys).subspan(from);
    truth_.remove(cache, blocks);
    // What engines rarely do and this one does half the time: tails that are none.
    const bool tails = draw_(2) == 0 && !holds_behind(cache, blocks[0]);
    caches.remove(cache, blocks, tails);
  }

  // Whether the rank holds anything behind a block.
  bool holds_behind(const EngineCache& cache, BlockHash block) {
    std::vector<BlockHash> open{block};
    while (!open.empty()) {
      const BlockHash at = open.back();
      open.pop_back();
      for (const BlockHash child : children_[at]) {
        if (truth_.holds(cache.replica, cache.rank, child)) return true;
        open.push_back(child);
      }
    }
    return false;
  }

  bool same_answers() {
    const std::vector<BlockHash> keys = chain();
    NaiveEngineCaches::Answer expected = truth_.match(keys);
    std::erase_if(expected, [&](const auto& entry) { return !trusted_[entry.first]; });
    caches.match(keys, TimePoint{} + std::chrono::hours(1), matches_);
    NaiveEngineCaches::Answer answer;
    for (const EngineCaches::Match& match : matches_) {
      if (!answer.emplace(match.replica, std::pair(match.blocks, match.length)).second)
        return false;
    }
    return answer == expected;
  }

  EngineCaches::Options options_;
  NaiveEngineCaches truth_;
  std::size_t fan_out_;
  std::size_t depth_;
  Draw draw_;
  std::array<bool, kReplicas> trusted_{};
  std::array<bool, kReplicas> shut_out_{};
  std::map<BlockHash, std::set<BlockHash>> children_;
  std::vector<EngineCaches::Match> matches_;
};

}  // namespace pointsman::test
