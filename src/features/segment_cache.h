#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pointsman {

// Ids of pieces of text that were made before, so that a conversation's next turn costs what is new
// in it and not its history. A rendered chat falls into pieces at its special tokens, two or more a
// message.
//
// Pieces are known by a hash of 128 bits under a secret; equal hashes of different pieces are not
// expected ever. The least recently used go first when `max_bytes` is reached, bookkeeping
// included.
//
// Thread-safe: sixteen parts with a lock each, which is held for a look-up of some 50 ns and never
// while ids are made or copied.
class SegmentCache {
 public:
  using Ids = std::shared_ptr<const std::vector<std::uint32_t>>;
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  SegmentCache(std::size_t max_bytes, std::uint64_t secret);

  // `owner` tells models apart: the same for the same piece of the same model.
  [[nodiscard]] Key key(const void* owner, std::string_view piece) const;
  // Null: not there.
  [[nodiscard]] Ids find(const Key& key);
  // Pieces beyond a thirty-second of the cache are not kept.
  void put(const Key& key, Ids ids);

  [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kParts = 16;
  // A list's and a map's node, the vector and its counts.
  static constexpr std::size_t kEntryBytes = 192;

  struct Entry {
    Key key;
    Ids ids;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const { return static_cast<std::size_t>(key.low); }
  };
  struct alignas(64) Part {
    std::mutex mutex;
    std::list<Entry> entries;  // the most recently used first
    std::unordered_map<Key, std::list<Entry>::iterator, Hash> places;
    std::size_t bytes = 0;
  };

  static std::size_t bytes_of(const Ids& ids) {
    return kEntryBytes + ids->size() * sizeof(std::uint32_t);
  }
  Part& part_of(const Key& key) { return parts_[key.high % kParts]; }

  const std::size_t part_bytes_;
  const std::uint64_t secret_;
  std::atomic<std::size_t> bytes_{0};
  std::array<Part, kParts> parts_;
};

}  // namespace pointsman
