#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dense_pool.h"
#include "core/features.h"

namespace pointsman {

// The parts of which a PrefixIndex is made. Only prefix_index.cc uses them.

inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Names a node; valid until a node is removed.
using NodeId = std::uint32_t;
// Names an extent: the one inside node i is 2i, the i-th further one is 2i + 1.
using ExtentRef = std::uint32_t;

// That a replica holds the first `length` blocks of a node's run. Linked into the replica's list,
// most recently used first.
struct Extent {
  ExtentRef newer = kNone;
  ExtentRef older = kNone;
  std::uint32_t stamp = 0;  // number of the insert that touched it last
  std::uint16_t replica = 0;
  std::uint16_t length = 0;
};

struct FurtherExtent {
  Extent extent;
  NodeId node = kNone;
  std::uint32_t next = kNone;  // of the node's further extents
};
static_assert(sizeof(FurtherExtent) == 24);

// A run of consecutive blocks. Most runs have one holder, so the first extent lives inside. A child
// may branch off anywhere along the run; it is found by its own first hash.
struct PrefixNode {
  union {
    BlockHash only;  // length == 1
    BlockHash* run;  // length > 1
  };
  std::uint32_t next_in_bucket = kNone;
  std::uint32_t further = kNone;  // further extents
  Extent extent;
  std::uint16_t length = 0;   // blocks; the greatest length of its extents
  std::uint16_t holders = 0;  // extents
  // The first `shared` blocks were seen under two session keys, the rest under `session` alone.
  std::uint16_t shared = 0;
  std::uint16_t session = 0;  // 16 bits of a mixed key

  PrefixNode() : only(0) {}
  [[nodiscard]] const BlockHash* hashes() const { return length == 1 ? &only : run; }
};
static_assert(sizeof(PrefixNode) == 40);

// The nodes with their runs, found by a run's first hash. Nodes are numbered without gaps;
// references to them stay valid until one is removed.
//
// The table is one of linear hashing (Litwin 1980): it grows by one bucket at a time, so that no
// insert pays for a rehash of everything.
class PrefixNodes {
 public:
  // A run longer than this continues in another node, so that growing one stays cheap.
  static constexpr std::size_t kMaxRun = 4'096;

  explicit PrefixNodes(std::uint64_t seed);
  ~PrefixNodes();
  PrefixNodes(const PrefixNodes&) = delete;
  PrefixNodes& operator=(const PrefixNodes&) = delete;

  PrefixNode& operator[](NodeId id) { return nodes_[id]; }
  const PrefixNode& operator[](NodeId id) const { return nodes_[id]; }
  [[nodiscard]] std::uint32_t size() const { return nodes_.size(); }

  // The node whose run begins with this hash, or kNone.
  [[nodiscard]] NodeId find(BlockHash first) const;
  // find() will be asked for this hash soon: memory is slow, so its place is called for now.
  void expect(BlockHash first) const { __builtin_prefetch(&buckets_[bucket_of(first)]); }

  // A new node without holders. `run` has 1 to kMaxRun hashes.
  NodeId add(std::span<const BlockHash> run);
  // Continues a node's run, up to kMaxRun in all.
  void append(NodeId id, std::span<const BlockHash> more);
  // Cuts a node's run to its first `length` blocks, at least one.
  void cut(NodeId id, std::size_t length);
  // Removes a node and moves the last one into its place. Returns whether there was one to move: it
  // is now called `id`.
  bool remove(NodeId id);

  [[nodiscard]] std::size_t bytes() const { return nodes_.bytes() + buckets_.bytes() + run_bytes_; }
  // The most by which bytes() grows, runs apart, when `count` nodes are added.
  [[nodiscard]] std::size_t growth(std::size_t count) const {
    return nodes_.growth(count) + buckets_.growth(count);
  }
  // What the run of a node of `length` blocks takes.
  [[nodiscard]] static std::size_t run_bytes(std::size_t length);

  // For tests: whether all is accounted for.
  [[nodiscard]] bool consistent() const;

 private:
  static constexpr std::size_t kFirstBuckets = 64;

  [[nodiscard]] std::uint32_t bucket_of(BlockHash first) const;
  void enter(NodeId id);
  void grow_table();
  std::uint32_t& link_to(NodeId id);
  void resize_run(PrefixNode& node, std::size_t length);

  std::uint64_t seed_;
  DensePool<PrefixNode, 256> nodes_;
  DensePool<std::uint32_t, 1'024> buckets_;  // first node of each
  std::uint32_t level_ = kFirstBuckets;      // the power of two at or below the buckets' number
  std::size_t run_bytes_ = 0;
};

}  // namespace pointsman
