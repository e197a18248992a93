#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "replica/prompt.h"
#include "sim/engine_config.h"
#include "sim/kv_model.h"

namespace pointsman {

// What has changed in a KV cache, in the order in which engines tell it: first that all was
// cleared, then what was removed, then what was stored.
struct KvChanges {
  // Blocks that follow each other along one prompt.
  struct Stored {
    std::vector<std::uint64_t> blocks;
    std::optional<std::uint64_t> parent;  // the block before the first; none: it begins the prompt
    TokenIds tokens;                      // of all blocks
    std::string salt;                     // of the prompt; empty: none
  };
  bool cleared = false;
  std::vector<std::uint64_t> removed;
  std::vector<Stored> stored;  // a parent is before its children

  [[nodiscard]] bool empty() const { return !cleared && removed.empty() && stored.empty(); }
};

// Knows the tokens and the parent of each block that is in the cache or that a running request may
// bring there, and so makes of the changes of a KvModel, which are bare hashes, what an engine
// would tell.
//
// Not thread-safe.
class KvJournal {
 public:
  // A request whose blocks are `chain` (of one block each, see block_chain()) may fill them from
  // now on. `tokens` are those of its prompt and answer.
  void enter(std::span<const sim::ChainRun> chain, std::span<const std::uint32_t> tokens,
             const std::string& salt);
  // The request is over. What it has changed may be still to be told.
  void leave(std::span<const std::uint64_t> blocks);

  // The cache was emptied, and no request holds any of it.
  void clear();

  // What is to be told after KvModel::take_changes() said so.
  [[nodiscard]] KvChanges take(std::span<const sim::ChainRun> changes);

  // Blocks that are known to be in the cache by what was told.
  [[nodiscard]] std::size_t held() const { return held_; }
  // Blocks that something is known of.
  [[nodiscard]] std::size_t known() const { return blocks_.size(); }

 private:
  struct Block {
    std::array<std::uint32_t, sim::kBlockTokens> tokens{};
    std::optional<std::uint64_t> parent;
    std::shared_ptr<const std::string> salt;
    std::uint32_t requests = 0;
    bool held = false;  // as was told
    bool held_now = false;
  };

  void store(std::uint64_t block, KvChanges& changes);
  void forget_if_unused(std::uint64_t block);

  std::unordered_map<std::uint64_t, Block> blocks_;
  std::vector<std::uint64_t> left_;  // by a request, since the last take()
  std::size_t held_ = 0;
  bool cleared_ = false;
};

}  // namespace pointsman
