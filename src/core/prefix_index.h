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
// A radix tree over chains of block hashes. A node is a run of consecutive blocks; each holder of
// it has an extent: how many of the run's blocks it holds. Since a block's hash stands for its
// whole prefix, comparing the last hash of a run compares the run, and one hash table finds every
// node by its first hash, without links between nodes. So a look-up costs one probe per branching
// point and not per block, and yields every holder's match length at once.
// docs/decisions/0003-prefix-index.md has the figures.
//
// Memory: about 10 bytes per block of a long run for its first holder and next to nothing for each
// further one; at most 48 bytes per block and holder in any shape. bytes() never exceeds
// Options::max_bytes (an empty index takes about 90 KB): the least recently used extents go first,
// tails before beginnings. Whoever touches a prefix touches what comes before a block later than
// the block itself, so the oldest extent is always a leaf of its holder.
//
// Time: a look-up is O(nodes on the path + holders²) and follows at most kMaxPath nodes; what an
// insert evicts is in proportion to what it adds; forget() is linear in what the replica holds.
//
// Not thread-safe.
class PrefixIndex {
 public:
  struct Options {
    std::size_t max_bytes = std::size_t{256} << 20;
    // A host's secret: keeps clients from making prompts that all fall into one bucket of the
    // table. Answers do not depend on it.
    std::uint64_t seed = 1;
  };

  // A chain is followed over at most so many nodes; the rest of it counts as unknown.
  static constexpr std::size_t kMaxPath = 4'096;

  explicit PrefixIndex(const Options& options);
  ~PrefixIndex();
  PrefixIndex(PrefixIndex&&) noexcept;
  PrefixIndex& operator=(PrefixIndex&&) noexcept;

  // Every holder's match length for `chain`. `session` decides what counts as shared: a block is
  // shared once it was seen under another session key than this one, or under two. Requests without
  // a key (0) count as one session. Does not allocate once `out` is warm.
  void match(std::span<const BlockHash> chain, std::uint64_t session, PrefixMatches& out) const;

  // `replica` is being sent `chain` and will hold it. Where even an otherwise empty index has no
  // room for all of the chain, its beginning is kept.
  void insert(std::span<const BlockHash> chain, std::uint64_t session, ReplicaIndex replica);

  // Likewise, for the chain that match() was just given: nothing else has been called since. The
  // way along the chain is not looked for again.
  void insert_matched(std::span<const BlockHash> chain, std::uint64_t session,
                      ReplicaIndex replica);

  // The replica restarted or left: nothing is known of it any more, its capacity included.
  void forget(ReplicaIndex replica);

  // How many blocks the replica's own cache can hold; beyond it its least recently used blocks are
  // dropped. 0 (the default): unknown, bounded by max_bytes alone.
  void set_capacity(ReplicaIndex replica, std::uint64_t blocks);

  [[nodiscard]] std::size_t bytes() const;     // what the index occupies
  [[nodiscard]] std::uint64_t blocks() const;  // block-holder pairs
  [[nodiscard]] std::uint64_t blocks(ReplicaIndex replica) const;
  [[nodiscard]] std::uint64_t evicted_blocks() const;  // pairs ever dropped for want of room

  // For tests: whether every internal invariant holds. Linear in the size of the index.
  [[nodiscard]] bool consistent() const;

 private:
  class Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace pointsman
