#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/id_table.h"

namespace pointsman::sim {

// Consecutive full blocks of a text. The id stands for their contents and for all before them, so a
// text is a chain of runs, and texts that begin alike have chains that begin with the same runs.
// Two chains may also use different numbers of blocks of one run: a conversation that grows is one
// run that becomes longer. A text cut into single blocks has runs of one block.
struct ChainRun {
  std::uint64_t id = 0;
  std::uint32_t blocks = 0;  // at least 1

  friend bool operator==(const ChainRun&, const ChainRun&) = default;
};

// The blocks that one request holds in a KvModel, and the chain of its text.
class KvHolding {
 public:
  // Blocks held.
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  // How many of them, from the first on, other requests can find.
  [[nodiscard]] std::uint32_t findable() const { return findable_; }

  // Takes over another text. Only while no blocks are held.
  void reset(std::span<const ChainRun> chain) { chain_.assign(chain.begin(), chain.end()); }
  [[nodiscard]] std::span<const ChainRun> chain() const { return chain_; }

 private:
  friend class KvModel;

  std::vector<ChainRun> chain_;
  std::vector<std::uint32_t> places_;  // of the chain's runs; empty while no blocks are held
  // The runs before this one are findable as a whole, and so many blocks of this one.
  std::uint32_t filled_ = 0;
  std::uint32_t in_filled_ = 0;
  std::uint32_t findable_ = 0;
  std::uint32_t blocks_ = 0;
  std::uint32_t noted_ = UINT32_MAX;  // the run where set_filler() noted its owner
};

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
// That order lets whole runs of blocks be kept as extents: what is cached of a run is its first so
// many blocks, of which a first part is referenced, and the queue holds pieces of the rest. The
// order of the queue is exactly that of single blocks; the work is per run and not per block.
//
// One simplification: a block computed although an equal one is findable is exchanged for that one
// as soon as it is full, and returns to the front of the queue. (vLLM keeps both until they are
// released.)
//
// Not thread-safe.
class KvModel {
 public:
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  // `block_count` must be at least 1.
  explicit KvModel(std::uint32_t block_count);

  // The findable beginning of a chain.
  struct Hit {
    std::uint32_t blocks = 0;
    std::uint32_t free = 0;  // of these, blocks that nobody references
  };
  // Looks at no more than the first `limit` blocks.
  [[nodiscard]] Hit find(std::span<const ChainRun> chain, std::uint32_t limit) const;

  // Gives an empty `holding` its hit, which must come from find() on its chain, and further blocks
  // up to `total`. All or nothing: false, with nothing changed, where too few blocks are free.
  [[nodiscard]] bool admit(KvHolding& holding, Hit hit, std::uint32_t total);

  // Allocates until the holding has `total` blocks. All or nothing.
  [[nodiscard]] bool grow(KvHolding& holding, std::uint32_t total);

  // Makes the first `count` blocks of the holding findable, as far as its chain goes.
  void publish(KvHolding& holding, std::uint32_t count) {
    if (holding.findable_ < count && holding.filled_ < holding.places_.size()) fill(holding, count);
  }

  // --- growing many holdings at once

  // Allocates blocks that give() hands out later. All or nothing.
  [[nodiscard]] bool take(std::uint64_t count);
  // Makes the holding `total` blocks long with blocks that have been taken.
  void give(KvHolding& holding, std::uint32_t total);

  // Whether publishing further blocks of the holding changes nothing but the run it fills: nobody
  // else uses that run, it is the chain's last, and none of its blocks to come is findable. It may
  // then be put off until somebody looks at that run.
  [[nodiscard]] bool fills_alone(const KvHolding& holding) const;
  // Notes on the run that `holding` fills alone that `who` puts off publishing, until release().
  void set_filler(KvHolding& holding, std::uint32_t who);
  void clear_filler(KvHolding& holding);
  // One of those noted on a run of the chain, or kNobody.
  [[nodiscard]] std::uint32_t filler(std::span<const ChainRun> chain) const;

  // Drops the references of a request to all its blocks.
  void release(KvHolding& holding);

  // Forgets all contents. Nothing may be held.
  void clear();

  // From now on, notes which runs gain or lose findable blocks.
  void note_changes() { notes_changes_ = true; }
  // The runs that have changed since the last call, each with the number of its blocks that are
  // findable now; a run that was gone in between may come twice, and the later entry holds. Valid
  // until the next call of any member.
  [[nodiscard]] std::span<const ChainRun> take_changes();

  [[nodiscard]] std::uint32_t block_count() const { return block_count_; }
  [[nodiscard]] std::uint32_t free_blocks() const { return free_count_; }
  [[nodiscard]] std::uint32_t referenced() const { return block_count_ - free_count_; }
  // Share of the blocks that running requests hold, in [0, 1].
  [[nodiscard]] double usage() const {
    return static_cast<double>(referenced()) / static_cast<double>(block_count_);
  }

 private:
  static constexpr std::uint32_t kNone = IdTable::kNone;

  static constexpr std::size_t kNoChange = SIZE_MAX;

  // So many requests reference a run's first so many blocks, and no more of it.
  struct Extent {
    std::uint32_t length = 0;
    std::uint32_t requests = 0;
  };

  struct Run {
    std::uint64_t id = 0;
    std::uint32_t cached = 0;  // findable blocks
    std::uint32_t users = 0;   // holdings with the run in their chain
    std::uint32_t filler = kNobody;
    Extent top;                          // the longest reference, {0, 0} where there is none
    std::uint32_t lowest_piece = kNone;  // of the free blocks, which are [top.length, cached)
    std::vector<Extent> shorter;         // ascending length
    std::size_t change = kNoChange;      // its entry in changes_
  };

  // Free blocks next to each other in the queue: blocks [low, high) of a run, from the last to the
  // first, or `high` blocks without contents.
  struct Piece {
    std::uint32_t run = kNone;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::uint32_t previous = kNone;  // in the queue
    std::uint32_t next = kNone;
    std::uint32_t above = kNone;  // in the same run
    std::uint32_t below = kNone;
  };

  void fill(KvHolding& holding, std::uint32_t count);
  void join(KvHolding& holding);
  std::uint32_t new_run(std::uint64_t id);
  void leave(std::uint32_t run);
  void drop_run(std::uint32_t run);
  void set_cached(std::uint32_t run, std::uint32_t blocks);
  static void add_reference(Run& run, std::uint32_t length);
  static void drop_reference(Run& run, std::uint32_t length);
  void lengthen_reference(std::uint32_t run, std::uint32_t from, std::uint32_t to);
  void take_front(std::uint32_t count);
  void take_pieces(Run& run, std::uint32_t up_to);
  void free_run_blocks(std::uint32_t run, std::uint32_t low, std::uint32_t high);
  void free_empty_blocks_at_back(std::uint32_t count);
  void free_empty_blocks_at_front(std::uint32_t count);
  std::uint32_t new_piece(std::uint32_t run, std::uint32_t low, std::uint32_t high);
  void append(std::uint32_t piece);
  void remove(std::uint32_t piece);

  std::uint32_t block_count_;
  std::uint32_t free_count_ = 0;
  std::uint32_t front_ = kNone;
  std::uint32_t back_ = kNone;
  IdTable by_id_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> unused_runs_;
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> unused_pieces_;
  bool notes_changes_ = false;
  std::vector<ChainRun> changes_;
  std::vector<ChainRun> taken_changes_;
};

}  // namespace pointsman::sim
