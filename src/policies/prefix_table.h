#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/features.h"
#include "core/replica.h"

namespace pointsman {

// Which replicas were last sent prompts that begin with a key: a bounded hash table, least recently
// used key first out. All memory is reserved at construction and touched as it fills (about 100
// bytes a key).
//
// Not thread-safe.
class PrefixTable {
 public:
  // The most holders kept of one key; the one remembered longest ago makes room.
  static constexpr std::size_t kHolders = 8;

  explicit PrefixTable(std::size_t capacity);

  // Keys are hashes of what clients send. Without a salt that they cannot know, a client could
  // choose prompts that all fall on the same slots. To be called once, while the table is empty.
  void salt(std::uint64_t salt) { salt_ = salt | 3; }
  [[nodiscard]] bool salted() const { return salt_ != 1; }

  // Adds the replica to the key's holders, most recent first, and makes the key the most recently
  // used. `blocks`: how many blocks of the prompt the key stands for.
  void remember(BlockHash key, std::uint32_t blocks, ReplicaIndex replica);

  // The key's holders into `out`; returns how many. 0: the key is not known, or its holders were
  // forgotten.
  std::size_t find(BlockHash key, std::array<ReplicaIndex, kHolders>& out) const;

  // Whether any key stands for that many blocks.
  [[nodiscard]] bool has_keys_of(std::uint32_t blocks) const {
    return blocks < keys_by_blocks_.size() && keys_by_blocks_[blocks] > 0;
  }

  // The replica holds nothing any more.
  void forget(ReplicaIndex replica);

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Holder {
    ReplicaIndex replica = kNoReplica;
    std::uint32_t epoch = 0;  // forgotten if the replica's has moved on
  };
  struct Entry {
    BlockHash key = 0;
    std::uint32_t blocks = 0;
    std::uint32_t newer = kNone;
    std::uint32_t older = kNone;
    std::uint32_t holders = 0;
    std::array<Holder, kHolders> holder{};
  };

  // Where the key's probing starts.
  [[nodiscard]] std::size_t home_of(BlockHash key) const {
    const std::uint64_t mixed = (key ^ (key >> 32)) * salt_;
    return (mixed ^ (mixed >> 32)) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t slot_of(BlockHash key) const;
  [[nodiscard]] std::uint32_t epoch_of(ReplicaIndex replica) const {
    return replica < epochs_.size() ? epochs_[replica] : 0;
  }
  std::uint32_t claim_entry();
  void erase_slot(std::size_t slot);
  void unlink(std::uint32_t entry);
  void link_newest(std::uint32_t entry);

  std::size_t capacity_;
  std::size_t size_ = 0;
  std::uint64_t salt_ = 1;  // odd
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // open addressing, a power of two; entry or kNone
  std::uint32_t newest_ = kNone;
  std::uint32_t oldest_ = kNone;
  std::vector<std::uint32_t> epochs_;          // by ReplicaIndex
  std::vector<std::uint32_t> keys_by_blocks_;  // how many keys stand for each number of blocks
};

}  // namespace pointsman
