#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/features.h"
#include "kv_events/event_batch.h"

namespace pointsman {

// Memory that several tables share. Not thread-safe.
struct TableBudget {
  std::size_t max_bytes = std::size_t{512} << 20;
  std::size_t used = 0;
};

// Under which of our keys an engine's blocks are known: engine hash to a short list of keys, in how
// many places the engine holds the block, and behind which other one it stands.
//
// Open addressing with linear probing and backward-shift deletion, so that a table that turns over
// for months is as quick as a new one. Loaded to seven eighths at most and grown by an eighth:
// 24 bytes an entry with one key, and thus 27 to 31 bytes a block.
//
// An entry names its parent by 32 bits of the parent's mixed hash, which are also all that a place
// is chosen by. Two of a million blocks may be taken for each other with a probability of 1e-9 a
// look-up; what depends on it is only how quickly the index may search.
//
// Never beyond the budget: insert() says no. Not thread-safe.
class BlockTable {
 public:
  // What is known of a block beside its keys. An entry always has a copy somewhere.
  struct Facts {
    std::uint16_t phase = 0;  // tokens behind the last multiple of the router's block size
    std::uint8_t copies = 0;  // in the GPU's cache: engines may hold a block twice; to kMostCopies
    bool slower[2] = {};      // in the tiers below: host memory, disk
    bool left_out = false;    // it has no key: something else than tokens is in its prefix
    std::uint16_t children = 0;  // blocks in the table that stand behind it; stays at kMostChildren

    [[nodiscard]] bool held() const { return copies > 0 || slower[0] || slower[1]; }
    friend bool operator==(const Facts&, const Facts&) = default;
  };
  static constexpr std::uint16_t kMostPhase = 0xFFF;
  static constexpr std::uint8_t kMostCopies = 15;
  static constexpr std::uint16_t kMostChildren = 0x1FFF;
  // A place in the table. Good until the next insert() or erase().
  using Place = std::size_t;

  // `keys`: of each entry, at least 1.
  BlockTable(std::size_t keys, std::uint64_t seed, TableBudget& budget);
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  [[nodiscard]] std::optional<Place> find(EngineHash hash) const;
  // For a hash that is not there, behind `parent`. Nothing where the budget is spent. Its keys and
  // facts are the caller's to set.
  [[nodiscard]] std::optional<Place> insert(EngineHash hash, std::optional<EngineHash> parent);
  void erase(Place place);
  void clear();  // gives the memory back

  [[nodiscard]] std::span<BlockHash> keys(Place place) {
    return {keys_.get() + place * keys_each_, keys_each_};
  }
  [[nodiscard]] Facts facts(Place place) const;
  void set_facts(Place place, const Facts& facts);
  // Whether no block is before this one.
  [[nodiscard]] bool begins_prompt(Place place) const { return parents_[place] == 0; }
  // Where the block before this one is, if it is there.
  [[nodiscard]] std::optional<Place> parent(Place place) const;

  // Calls `use(Place)` for every entry, in no order.
  template <typename Use>
  void for_each(Use&& use) {
    for (Place place = 0; place < capacity_; ++place) {
      if (hashes_[place] != kFree) use(place);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }  // places are below it
  [[nodiscard]] std::size_t bytes() const { return capacity_ * entry_bytes(); }

 private:
  static constexpr EngineHash kFree = 0;

  [[nodiscard]] std::size_t entry_bytes() const {
    return sizeof(EngineHash) + 2 * sizeof(std::uint32_t) + keys_each_ * sizeof(BlockHash);
  }
  // The bits that choose the place; never 0.
  [[nodiscard]] std::uint32_t tag_of(EngineHash stored) const;
  [[nodiscard]] Place home(std::uint32_t tag) const {
    return static_cast<Place>((std::uint64_t{tag} * capacity_) >> 32);
  }
  [[nodiscard]] Place after(Place place) const { return place + 1 == capacity_ ? 0 : place + 1; }
  // Steps from one place on to another.
  [[nodiscard]] std::size_t distance(Place from, Place to) const {
    return to >= from ? to - from : to + capacity_ - from;
  }
  void move_entry(Place from, Place to);
  bool grow();

  const std::size_t keys_each_;
  const std::uint64_t seed_;
  TableBudget& budget_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::unique_ptr<EngineHash[]> hashes_;
  std::unique_ptr<std::uint32_t[]> facts_;
  std::unique_ptr<std::uint32_t[]> parents_;  // tags; 0: none
  std::unique_ptr<BlockHash[]> keys_;
};

}  // namespace pointsman
