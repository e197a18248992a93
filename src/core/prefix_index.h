#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/features.h"
#include "core/replica.h"

namespace pointsman {

// The answer of a look-up.
struct PrefixMatches {
  struct Holder {
    ReplicaIndex replica;
    std::uint32_t blocks;  // leading blocks of the chain believed to be cached there, > 0
  };
  std::vector<Holder> holders;      // each replica at most once; in no order
  std::uint32_t shared_blocks = 0;  // leading blocks seen under more than one session key

  void clear() {
    holders.clear();
    shared_blocks = 0;
  }
};

// Which replica is believed to hold which prompt prefixes (approximate: learnt from what was sent).
//
// A radix tree over chains of block hashes. A node is a run of consecutive blocks without a branch;
// each holder of it has an extent: how many of the run's blocks it holds. Since a block's hash
// stands for its whole prefix, comparing the last hash of a run compares the run, so that a look-up
// costs one probe per branching point and not per block, and yields every holder's match length at
// once.
//
// Bounded: memory stays below Options::max_bytes. The least recently used extents go first, tails
// before beginnings: whoever touches a prefix touches all that comes before it later in the same
// step, so the oldest extent is always a leaf of its holder.
//
// Not thread-safe.
class PrefixIndex {
 public:
  struct Options {
    std::size_t max_bytes = std::size_t{256} << 20;
  };

  explicit PrefixIndex(const Options& options);
  ~PrefixIndex();
  PrefixIndex(PrefixIndex&&) noexcept;
  PrefixIndex& operator=(PrefixIndex&&) noexcept;

  // Every holder's match length for `chain`. `session` (0: none) decides what counts as shared: a
  // block is shared once it was seen under another session key than this one, or under two.
  // Does not allocate once `out` is warm.
  void match(std::span<const BlockHash> chain, std::uint64_t session, PrefixMatches& out) const;

  // `replica` is being sent `chain` and will hold it.
  void insert(std::span<const BlockHash> chain, std::uint64_t session, ReplicaIndex replica);

  // The replica restarted or left: nothing is known of it any more.
  void forget(ReplicaIndex replica);

  // How many blocks the replica's own cache can hold; beyond it its least recently used extents are
  // dropped. 0 (the default): unknown, bounded by max_bytes alone.
  void set_capacity(ReplicaIndex replica, std::uint64_t blocks);

  [[nodiscard]] std::size_t bytes() const;     // what the index occupies
  [[nodiscard]] std::uint64_t blocks() const;  // block-holder pairs
  [[nodiscard]] std::uint64_t blocks(ReplicaIndex replica) const;
  [[nodiscard]] std::uint64_t evicted_blocks() const;  // pairs ever dropped for want of room

 private:
  class Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace pointsman
