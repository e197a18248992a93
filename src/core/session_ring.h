#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/replica.h"

namespace pointsman {

// Consistent hashing: which replica is the home of a key (a session, a prompt prefix), such that
// every router computes the same home from the replicas' identities and weights alone, and few keys
// move when a replica comes or goes.
//
// Answers depend on identities and weights only, not on indices or on the order of the list. A key
// is a well-mixed 64-bit hash. Nothing here is thread-safe.

// Rendezvous hashing (Thaler and Ravishankar 1998), weighted by the logarithm method (Schindelhauer
// and Schomaker 2005): the home is the candidate with the greatest -w / ln(h), where h in (0, 1) is
// the hash of key and replica. Shares are proportional to weight; when a replica leaves, its own
// keys move and no other.
//
// Writes the best candidates into `order`, best first, and returns how many: the smaller of the two
// sizes, and at most kRendezvousOrder. No state, no allocation; O(candidates), about 2 ns each.
inline constexpr std::size_t kRendezvousOrder = 16;
std::size_t rendezvous(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                       std::span<const Replica> replicas, std::span<ReplicaIndex> order);

namespace ring_detail {

// The replicas of one table, sorted by identity, and which of them a walk has already visited.
class Members {
 public:
  void assign(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas);

  struct Member {
    std::uint64_t identity;
    double weight;
    ReplicaIndex replica;
  };
  [[nodiscard]] const std::vector<Member>& list() const { return list_; }

  void begin_walk() {
    if (++walk_ == 0) {  // wrapped: old marks would look new
      std::fill(visited_.begin(), visited_.end(), 0U);
      walk_ = 1;
    }
  }
  // Whether this is the walk's first visit of the slot.
  bool visit(std::uint16_t slot) {
    if (visited_[slot] == walk_) return false;
    visited_[slot] = walk_;
    return true;
  }

 private:
  std::vector<Member> list_;
  std::vector<std::uint32_t> visited_;
  std::uint32_t walk_ = 0;
};

// Visits the distinct members in the order of `slots` from `start` on, around the end.
template <typename Visit>
void walk_slots(const std::vector<std::uint16_t>& slots, std::size_t start, Members& members,
                Visit& visit) {
  members.begin_walk();
  std::size_t left = members.list().size();
  for (std::size_t i = start; left > 0;) {
    const std::uint16_t slot = slots[i];
    if (members.visit(slot)) {
      if (visit(members.list()[slot].replica)) return;
      --left;
    }
    if (++i == slots.size()) i = 0;
    if (i == start) return;  // members without an entry are never met
  }
}

}  // namespace ring_detail

// Ketama-style hash ring as Envoy builds it (source/extensions/load_balancing_policies/ring_hash):
// each replica has points in proportion to its weight, at least kMinPoints in all, the lightest
// replica having a whole number of them; point i is the xxHash64 of "<identity>_<i>"; a key belongs
// to the first point at or after it.
class HashRing {
 public:
  static constexpr std::size_t kMinPoints = 1'024;
  // Envoy allows eight million. A ring is rebuilt between two decisions, so ours stays small enough
  // for that; a replica whose share of the weight is below one in kMaxPoints may get no point.
  static constexpr std::size_t kMaxPoints = 65'536;

  // Allocates and sorts: about 100 µs for 1,024 points.
  void build(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas);

  // Calls visit(ReplicaIndex) for each distinct replica in ring order from the key on, until it
  // returns true ("this one"). The first is the key's home. O(log points) for the first.
  template <typename Visit>
  void walk(std::uint64_t key, Visit&& visit) {
    if (points_.empty()) return;
    const auto at = std::lower_bound(points_.begin(), points_.end(), key);
    const std::size_t start =
        at == points_.end() ? 0 : static_cast<std::size_t>(at - points_.begin());
    ring_detail::walk_slots(slots_, start, members_, visit);
  }

  [[nodiscard]] std::size_t size() const { return points_.size(); }

 private:
  ring_detail::Members members_;
  std::vector<std::uint64_t> points_;  // sorted
  std::vector<std::uint16_t> slots_;   // parallel: place in members_
};

// Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4): replicas take turns in filling a table
// of prime size, each in the order of its own permutation of the entries. Weighted as in Envoy: a
// replica of half the greatest weight takes every other turn.
//
// More even than the ring, O(1) for the home; when a replica leaves, a few keys of others move too.
class MaglevTable {
 public:
  static constexpr std::size_t kEntries = 65'537;

  // Allocates; a few milliseconds.
  void build(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas);

  // As HashRing::walk(): distinct replicas in table order from the key's entry on.
  template <typename Visit>
  void walk(std::uint64_t key, Visit&& visit) {
    if (slots_.empty()) return;
    ring_detail::walk_slots(slots_, static_cast<std::size_t>(key % kEntries), members_, visit);
  }

  [[nodiscard]] std::size_t size() const { return slots_.size(); }

 private:
  ring_detail::Members members_;
  std::vector<std::uint16_t> slots_;
};

// Stands for a list of candidates with their identities and weights, in any order.
[[nodiscard]] std::uint64_t fingerprint(std::span<const ReplicaIndex> candidates,
                                        std::span<const Replica> replicas);

// Tables for the lists of candidates in use lately: one for all of the pool, others for models that
// only some replicas serve and for retries without a failed replica. A table is built when its list
// is first seen, and kept while it is among the kTables used last; a warm find() does not allocate.
template <typename Table>
class TableCache {
 public:
  static constexpr std::size_t kTables = 8;

  Table& find(std::span<const ReplicaIndex> candidates, std::span<const Replica> replicas) {
    const std::uint64_t wanted = fingerprint(candidates, replicas);
    ++uses_;
    Slot* oldest = &slots_[0];
    for (Slot& slot : slots_) {
      if (slot.used != 0 && slot.fingerprint == wanted) {
        slot.used = uses_;
        return slot.table;
      }
      if (slot.used < oldest->used) oldest = &slot;
    }
    oldest->table.build(candidates, replicas);
    oldest->fingerprint = wanted;
    oldest->used = uses_;
    ++built_;
    return oldest->table;
  }

  // Tables ever built.
  [[nodiscard]] std::uint64_t built() const { return built_; }

 private:
  struct Slot {
    std::uint64_t fingerprint = 0;
    std::uint64_t used = 0;  // 0: empty
    Table table;
  };
  std::array<Slot, kTables> slots_;
  std::uint64_t uses_ = 0;
  std::uint64_t built_ = 0;
};

}  // namespace pointsman
