#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/prefix_index.h"

namespace pointsman::test {

// The plain truth that a PrefixIndex approximates: a set of (replica, block hash), least recently
// used first out, where a chain's later blocks count as used before its earlier ones.
class NaivePrefixIndex {
 public:
  void insert(std::span<const BlockHash> chain, std::uint64_t session, ReplicaIndex replica) {
    for (std::size_t i = chain.size(); i-- > 0;) {
      auto& holders = held_[chain[i]];
      const auto known = holders.find(replica);
      if (known != holders.end()) {
        used_.splice(used_.begin(), used_, known->second);
      } else {
        used_.emplace_front(replica, chain[i]);
        holders[replica] = used_.begin();
      }
      sessions_[chain[i]].insert(session);
    }
  }

  // Drops the least recently used pairs beyond `blocks`.
  void limit(std::size_t blocks) {
    while (used_.size() > blocks) {
      const auto& [replica, hash] = used_.back();
      erase(replica, hash);
      used_.pop_back();
    }
  }

  void forget(ReplicaIndex replica) {
    for (auto pair = used_.begin(); pair != used_.end();) {
      if (pair->first == replica) {
        erase(replica, pair->second);
        pair = used_.erase(pair);
      } else {
        ++pair;
      }
    }
  }

  [[nodiscard]] std::uint32_t match(std::span<const BlockHash> chain, ReplicaIndex replica) const {
    std::uint32_t blocks = 0;
    for (const BlockHash hash : chain) {
      const auto holders = held_.find(hash);
      if (holders == held_.end() || !holders->second.contains(replica)) break;
      ++blocks;
    }
    return blocks;
  }

  // Leading blocks ever seen under another key than `session`, or under two.
  [[nodiscard]] std::uint32_t shared(std::span<const BlockHash> chain,
                                     std::uint64_t session) const {
    std::uint32_t blocks = 0;
    for (const BlockHash hash : chain) {
      const auto seen = sessions_.find(hash);
      if (seen == sessions_.end() || (seen->second.size() == 1 && seen->second.contains(session))) {
        break;
      }
      ++blocks;
    }
    return blocks;
  }

  [[nodiscard]] std::size_t size() const { return used_.size(); }

 private:
  using Used = std::list<std::pair<ReplicaIndex, BlockHash>>;

  void erase(ReplicaIndex replica, BlockHash hash) {
    const auto holders = held_.find(hash);
    holders->second.erase(replica);
    if (holders->second.empty()) held_.erase(holders);
  }

  Used used_;  // most recently used first
  std::unordered_map<BlockHash, std::map<ReplicaIndex, Used::iterator>> held_;
  std::unordered_map<BlockHash, std::set<std::uint64_t>> sessions_;
};

}  // namespace pointsman::test
