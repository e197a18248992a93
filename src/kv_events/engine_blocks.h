#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine_caches.h"
#include "core/features.h"
#include "core/token_chain.h"
#include "kv_events/block_table.h"
#include "kv_events/event_batch.h"
#include "kv_events/shared_keys.h"

namespace pointsman {

// The tier that an event's medium names: "GPU" or nothing; "CPU", "CPU_PINNED", "HOST", …; whatever
// else is as slow as a disk.
[[nodiscard]] Tier tier_of(std::string_view medium);

// Takes what an engine's events mean for the index, in the terms of EngineCaches. Keys are of
// TokenChain.
class CacheChanges {
 public:
  virtual ~CacheChanges() = default;
  // `keys` follow each other in a prompt, behind `before`; nothing: they begin it, or what is
  // before them is held in this tier or a faster one. Those of them that the tier held already are
  // appended to `again`.
  virtual void store(Tier tier, std::optional<BlockHash> before, std::span<const BlockHash> keys,
                     std::vector<BlockHash>& again) = 0;
  // `tails`: nothing is held behind any of them.
  virtual void remove(Tier tier, std::span<const BlockHash> keys, bool tails) = 0;
  virtual void clear() = 0;  // nothing is held in any tier
};

// What one cache of an engine (a replica's data-parallel rank) holds by its own word: turns its
// events, which speak of blocks by the engine's own hashes, into keys of our chain over the token
// ids. So no hash algorithm or seed of the engine needs to be known.
//
// A stored block is placed behind its parent, which the table knows by its hash; the first block
// of a prompt begins a chain for its world (base model or adapter) and cache salt. The router's
// block size need not be the engine's: a block that ends at token p makes known every multiple of
// the router's block size that it covers, so pages of one token work as well as blocks of 32. A key
// that several blocks cover, of prompts that part behind it, is held until the last of them is
// gone.
//
// Left out, together with all that follows them in their prompts: blocks with a picture or an
// unknown thing in their hash, and those of an adapter without a name. They are kept in the table,
// for their followers would be strangers else.
//
// Hybrid models have several groups of layers, each with blocks of its own and all under the same
// hashes. Only a group whose blocks make up a whole prefix counts: the first one seen with full
// attention. Windows and states (sliding window, Mamba) are passed over.
//
// Engines may hold one block twice (two requests computed it at once) and tell of each copy:
// copies are counted, and the block is gone when the last one is.
//
// Not thread-safe.
class EngineBlocks {
 public:
  struct Options {
    std::uint32_t block_tokens = 16;  // the router's, 1 to 4,096
    std::uint64_t seed = 1;           // of the table
  };

  // `chain` and `budget` outlive it. `world` is the base model's canonical name.
  EngineBlocks(const TokenChain& chain, TableBudget& budget, const Options& options);

  // The canonical name of the base model. Blocks that are already placed keep their keys: clear()
  // where that is not wanted.
  void set_world(std::string_view world) { world_ = world; }

  void apply(const KvEvent& event, CacheChanges& changes);

  // The engine holds nothing any more, as far as we know.
  void clear(CacheChanges& changes);

  // Tells all that is held once more, to someone who has forgotten it.
  void tell_all(CacheChanges& changes);

  // Counts since the beginning, in the engine's blocks.
  struct Counts {
    std::uint64_t stored = 0;        // placed; copies included
    std::uint64_t removed = 0;       // by events of their own
    std::uint64_t cleared = 0;       // AllBlocksCleared
    std::uint64_t left_out = 0;      // without a key, for what is in their prefix
    std::uint64_t unplaced = 0;      // behind a parent that is not known
    std::uint64_t conflicts = 0;     // a hash that stood for another prefix before
    std::uint64_t refused = 0;       // for want of memory
    std::uint64_t other_groups = 0;  // of groups that do not count
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

  // Blocks that are known to be in the GPU's cache, copies and other groups' included: to compare
  // with the number of blocks that the engine has.
  [[nodiscard]] std::uint64_t gpu_blocks() const { return gpu_blocks_ + other_blocks_; }
  // Whether every group that was heard of is one that does not count.
  [[nodiscard]] bool only_windows() const { return !group_known_ && counts_.other_groups > 0; }
  [[nodiscard]] std::uint32_t engine_block_tokens() const { return engine_block_tokens_; }
  [[nodiscard]] std::size_t blocks() const { return table_ ? table_->size() : 0; }
  [[nodiscard]] std::size_t bytes() const {
    return (table_ ? table_->bytes() : 0) + shared_.bytes();
  }

 private:
  // How far a chain has come: behind a block, or at its start.
  struct Link {
    BlockHash key = 0;
    std::uint16_t phase = 0;
    bool left_out = false;
    std::optional<EngineHash> block;         // the last one; nothing at the start
    std::optional<BlockTable::Facts> facts;  // of that block, where it is in the table
  };

  [[nodiscard]] bool counts_for_prefix(const KvEvent& event);
  void store(const KvEvent& event, CacheChanges& changes);
  void store_known(const KvEvent& event, Tier tier, CacheChanges& changes);
  void remove(const KvEvent& event, CacheChanges& changes);
  [[nodiscard]] std::optional<Link> start_of(const KvEvent& event);
  [[nodiscard]] std::size_t blocks_with_key(const KvEvent& event) const;
  void make_table(std::uint32_t engine_block_tokens);
  Link place(EngineHash hash, const Link& from, std::span<const std::uint32_t> tokens, Tier tier,
             CacheChanges& changes);
  bool add_copy(BlockTable::Place place, Tier tier);
  [[nodiscard]] std::optional<BlockHash> before(const Link& from, Tier tier) const;
  void tell(const std::optional<BlockHash>& before, std::span<const BlockHash> keys);
  void tell_stored(Tier tier, CacheChanges& changes);
  void tell_stored(Tier tier, const std::optional<BlockHash>& before,
                   std::span<const BlockHash> keys, CacheChanges& changes);
  void take_back(Tier tier, BlockTable::Place place);
  void drop_everywhere(BlockTable::Place place, CacheChanges& changes);
  void erase(BlockTable::Place place);
  void remove_copy(BlockTable::Place place, Tier tier, bool& tails);
  [[nodiscard]] std::span<const BlockHash> emitted(BlockTable::Place place);
  [[nodiscard]] std::optional<BlockHash> before(BlockTable::Place place, Tier tier);

  const TokenChain& chain_;
  TableBudget& budget_;
  const Options options_;
  std::string world_;
  std::unique_ptr<BlockTable> table_;  // made when the engine's block size is known
  SharedKeys shared_;
  std::size_t keys_each_ = 1;
  std::uint32_t engine_block_tokens_ = 0;
  bool group_known_ = false;
  std::optional<std::int64_t> group_;  // the one that counts; nothing: events name none
  // A block went from before others, and a key of it stayed, or it had none: the index heard of no
  // hole, so that what is before the hole would pass for a tail.
  bool unheard_hole_ = false;
  std::uint64_t gpu_blocks_ = 0;
  std::uint64_t other_blocks_ = 0;
  Counts counts_;
  std::vector<BlockHash> keys_;  // scratch: of the block that is placed
  // Scratch: keys to be told, which follow each other, and what is before them.
  std::vector<BlockHash> told_;
  std::optional<BlockHash> told_before_;
  std::vector<BlockHash> again_;           // scratch of tell_stored()
  std::vector<EngineHash> behind_;         // scratch of remove()
  std::vector<bool> done_;                 // scratch of tell_all()
  std::vector<BlockTable::Place> way_up_;  // scratch of tell_all()
};

}  // namespace pointsman
