#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace pointsman::sim {

// Identity of a full block: a hash over its tokens and all tokens before it, so that equal hashes
// mean equal prefixes. Any value but 0.
using BlockHash = std::uint64_t;

// Index of a physical block, 0 to block_count() - 1.
using BlockId = std::uint32_t;

// The paged KV cache of one engine: a fixed number of blocks with reference counts, and a prefix
// cache over them, by the published rules of vLLM's block pool:
//
// - A block is *referenced* (by running requests), or *free*. A free block may still hold a cached
//   prefix; it is then both free and reusable, and it does not count as used.
// - Free blocks form a queue. Allocation takes from its front and forgets what the block held; a
//   released request's blocks join its back, last block first. So the least recently used chains
//   go first, and each loses its tail before its head: what is cached of a chain is a prefix.
// - A hit takes free blocks out of the middle of the queue.
//
// One simplification: of two blocks with the same contents, computed at the same time, only the
// first is findable.
//
// Not thread-safe.
class KvModel {
 public:
  // Throws nothing; `block_count` must be at least 1.
  explicit KvModel(std::size_t block_count);

  // How many leading blocks of `chain` are cached.
  [[nodiscard]] std::size_t cached_prefix(std::span<const BlockHash> chain) const;

  // Makes `blocks` longer: references the `hit` leading cached blocks of `chain` (only into an
  // empty `blocks`; `hit` must come from cached_prefix()), then allocates until it holds `total`
  // blocks. All or nothing: false, with nothing changed, where too few blocks are free.
  [[nodiscard]] bool grow(std::vector<BlockId>& blocks, std::span<const BlockHash> chain,
                          std::size_t hit, std::size_t total);

  // Makes the full block `block` findable under `hash`.
  void publish(BlockId block, BlockHash hash);

  // Drops the references of a request to all its blocks and empties `blocks`.
  void release(std::vector<BlockId>& blocks);

  [[nodiscard]] std::size_t block_count() const { return blocks_.size(); }
  [[nodiscard]] std::size_t referenced() const { return blocks_.size() - free_count_; }
  // Share of the blocks that running requests hold, in [0, 1].
  [[nodiscard]] double usage() const {
    return static_cast<double>(referenced()) / static_cast<double>(blocks_.size());
  }
  // Blocks whose contents a later request could reuse, referenced or not.
  [[nodiscard]] std::size_t cached_blocks() const { return by_hash_.size(); }

 private:
  static constexpr BlockId kNone = UINT32_MAX;

  struct Block {
    BlockHash hash = 0;  // 0: not findable
    std::uint32_t references = 0;
    BlockId previous = kNone;  // neighbours in the free queue
    BlockId next = kNone;
  };

  void push_back(BlockId id);
  void unlink(BlockId id);
  BlockId take_front();

  std::vector<Block> blocks_;
  std::unordered_map<BlockHash, BlockId> by_hash_;
  BlockId front_ = kNone;
  BlockId back_ = kNone;
  std::size_t free_count_ = 0;
};

}  // namespace pointsman::sim
