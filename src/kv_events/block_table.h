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
// Open addressing in which entries lie in the order of their mixed hashes, each as close behind its
// own place as there is room (Amble and Knuth 1974). So a search is short in a table that is ten
// elevenths full, one that turns over for months is as quick as a new one, and growing is a pass
// from one end to the other in the memory that is there. It grows by a thirty-second: 24 bytes an
// entry with one key, and thus at most 27.5 bytes a block of some thousands.
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
  [[nodiscard]] bool begins_prompt(Place place) const { return entries_[place].parent == 0; }
  // Where the block before this one is, if it is there.
  [[nodiscard]] std::optional<Place> parent(Place place) const;

  // Calls `use(Place)` for every entry, in no order.
  template <typename Use>
  void for_each(Use&& use) {
    for (Place place = 0; place < places_; ++place) {
      if (tags_[place] != kFree) use(place);
    }
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t places() const { return places_; }  // all are below it
  [[nodiscard]] std::size_t bytes() const { return places_ * entry_bytes(); }

 private:
  static constexpr std::uint32_t kFree = 0;

  // A mixed hash, whole: its upper half chooses the place and is never kFree.
  struct Mixed {
    std::uint32_t tag;
    std::uint32_t rest;
  };
  struct Entry {
    std::uint32_t rest;
    std::uint32_t facts;
    std::uint32_t parent;  // its tag; 0: none
  };
  struct Free {
    void operator()(void* memory) const;
  };
  template <typename T>
  using Array = std::unique_ptr<T[], Free>;

  [[nodiscard]] std::size_t entry_bytes() const {
    return sizeof(std::uint32_t) + sizeof(Entry) + keys_each_ * sizeof(BlockHash);
  }
  [[nodiscard]] Mixed mixed(EngineHash hash) const;
  [[nodiscard]] Place home(std::uint32_t tag) const {
    return static_cast<Place>((std::uint64_t{tag} * capacity_) >> 32);
  }
  // The first place at or behind the tag's own that is free or has it or a greater one.
  [[nodiscard]] Place seek(std::uint32_t tag) const;
  void move_entry(Place from, Place to);
  // Moves the entries of the places from `first` to before `end` by one place.
  void move_up(Place first, Place end);
  void move_down(Place first, Place end);
  bool grow();
  bool spread(std::size_t capacity);

  const std::size_t keys_each_;
  const std::uint64_t seed_;
  TableBudget& budget_;
  std::size_t capacity_ = 0;  // places that are some entry's own
  std::size_t places_ = 0;    // with those behind them, the last of which stays free
  std::size_t size_ = 0;
  Array<std::uint32_t> tags_;
  Array<Entry> entries_;
  Array<BlockHash> keys_;
};

}  // namespace pointsman
