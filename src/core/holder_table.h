#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/features.h"

namespace pointsman {

// Which of 64 holders have a block: a hash table from a block's hash to a set of holders. The part
// of which EngineCaches is made; only engine_caches.cc uses it.
//
// A block takes 16 bytes however many holders it has. The table is one of linear hashing (Litwin
// 1980) whose buckets are segments of a few hundred entries: small tables of their own, each with
// room for what it holds and a little more. So nothing is ever rehashed as a whole: the longest
// pause is the copy of one segment, some microseconds, and what the table occupies follows what it
// holds, up and down. In a segment entries lie in the order of their hashes, each
// as close behind its own place as there is room (ordered linear probing, Amble and Knuth 1974), so
// that a search ends where the hash would be, found or not.
//
// Not thread-safe.
class HolderTable {
 public:
  // A set of holders, bit by bit.
  using Holders = std::uint64_t;

  explicit HolderTable(std::uint64_t seed);
  ~HolderTable();
  HolderTable(const HolderTable&) = delete;
  HolderTable& operator=(const HolderTable&) = delete;

  // Who holds the block.
  [[nodiscard]] Holders find(BlockHash block) const;
  // find() will be asked for this block soon: memory is slow, so its place is called for now.
  void expect(BlockHash block) const;

  enum class Added : std::uint8_t {
    kNew,     // it was not held by this holder
    kHeld,    // it was
    kNoRoom,  // the table would have to grow by more than there is room for
  };
  // `room` is how many bytes may be allocated, those included that are given back at once.
  Added add(BlockHash block, std::uint32_t holder, std::size_t room);
  // Returns whether the holder held the block.
  bool remove(BlockHash block, std::uint32_t holder);

  // Begins to take some holders out of all blocks; sweep() goes on with it, by about `blocks` of
  // them, and says whether it is done. One at a time. Until then find() may still name them.
  void begin_sweep(Holders gone);
  bool sweep(std::size_t blocks);

  [[nodiscard]] std::uint64_t size() const { return size_; }  // blocks with any holder
  [[nodiscard]] std::size_t bytes() const;

  // For tests: whether every internal invariant holds. Linear in the size of the table.
  [[nodiscard]] bool consistent() const;
  // For tests: how many blocks a holder holds. Likewise.
  [[nodiscard]] std::uint64_t held_by(std::uint32_t holder) const;

 private:
  struct Entry {
    std::uint64_t hash = 0;  // of the block's hash: mixed with the seed
    Holders holders = 0;     // empty: no entry
  };
  static_assert(sizeof(Entry) == 16);
  // `capacity` places and some more behind them, which entries of the last places may spill to; the
  // very last ones stay empty and end every search.
  struct Segment {
    Entry* entries = nullptr;
    std::uint32_t capacity = 0;
    std::uint32_t size = 0;
  };
  class Filler;

  [[nodiscard]] std::uint64_t hash_of(BlockHash block) const;
  [[nodiscard]] std::size_t segment_of(std::uint64_t hash) const;
  static std::uint32_t home(const Segment& segment, std::uint64_t hash);
  static std::uint32_t place_of(const Segment& segment, std::uint64_t hash);
  static bool insert(Segment& segment, std::uint32_t place, const Entry& entry);
  static void erase(Segment& segment, std::uint32_t place);

  template <typename Put>
  bool rebuild(Segment& segment, std::uint32_t capacity, std::size_t room, Put&& put);
  void release(Segment& segment);
  bool grow(Segment& segment, std::size_t room);
  void shrink(Segment& segment);
  void split(std::size_t room);
  void merge();
  [[nodiscard]] bool has_too_many_segments() const;
  void take_out(Segment& segment);

  std::uint64_t seed_;
  std::vector<Segment> segments_;
  std::size_t level_ = 1;  // the power of two at or below the segments' number
  std::uint64_t size_ = 0;
  std::size_t entry_bytes_ = 0;
  Holders gone_ = 0;       // being swept
  std::size_t swept_ = 0;  // segments done
};

}  // namespace pointsman
