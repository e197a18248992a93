#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/features.h"
#include "core/replica.h"

namespace pointsman {

// Which blocks replicas dropped a moment ago: a small set of fixed size, from which entries are
// taken out as well. A part of EngineCaches.
//
// Open addressing with linear probing, at most half full, and backward-shift deletion. A pair is
// known by 64 mixed bits: two of n pairs are taken for each other with a probability of n / 2^64.
//
// Not thread-safe.
class RecentDrops {
 public:
  // It occupies `bytes`, rounded down to a power of two that is at least 64.
  RecentDrops(std::size_t bytes, std::uint64_t seed)
      : seed_(seed), slots_(std::bit_floor(bytes < kFewestBytes ? kFewestBytes : bytes) / 8) {}

  // False where there is no room for it.
  bool add(ReplicaIndex replica, BlockHash block) {
    std::size_t at = find(replica, block);
    if (slots_[at] != 0) return true;
    if (2 * (size_ + 1) > slots_.size()) return false;
    slots_[at] = mixed(replica, block);
    ++size_;
    return true;
  }

  void erase(ReplicaIndex replica, BlockHash block) {
    if (size_ == 0) return;
    std::size_t hole = find(replica, block);
    if (slots_[hole] == 0) return;
    for (std::size_t next = after(hole); slots_[next] != 0; next = after(next)) {
      // An entry may move back to the hole unless its home lies behind it.
      const std::size_t way = (next - home(slots_[next])) & (slots_.size() - 1);
      if (way < ((next - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole] = 0;
    --size_;
  }

  [[nodiscard]] bool contains(ReplicaIndex replica, BlockHash block) const {
    return size_ > 0 && slots_[find(replica, block)] != 0;
  }

  void clear() {
    if (size_ > 0) slots_.assign(slots_.size(), 0);
    size_ = 0;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return slots_.size() * sizeof(slots_[0]); }

 private:
  static constexpr std::size_t kFewestBytes = 64;

  [[nodiscard]] std::uint64_t mixed(ReplicaIndex replica, BlockHash block) const {
    // The finaliser of splitmix64.
    std::uint64_t z = block ^ seed_ ^ (std::uint64_t{replica} << 48);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
    return z == 0 ? 1 : z;
  }
  [[nodiscard]] std::size_t home(std::uint64_t mixed) const { return mixed & (slots_.size() - 1); }
  [[nodiscard]] std::size_t after(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  // Where the pair is, or the free place where it would be put.
  [[nodiscard]] std::size_t find(ReplicaIndex replica, BlockHash block) const {
    const std::uint64_t wanted = mixed(replica, block);
    std::size_t at = home(wanted);
    while (slots_[at] != 0 && slots_[at] != wanted) at = after(at);
    return at;
  }

  std::uint64_t seed_;
  std::size_t size_ = 0;
  std::vector<std::uint64_t> slots_;  // 0: free
};

}  // namespace pointsman
