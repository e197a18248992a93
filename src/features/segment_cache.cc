#include "features/segment_cache.h"

#include <utility>

// Compiled in: a call into the library costs more than the hash of a short piece.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pointsman {

SegmentCache::SegmentCache(std::size_t max_bytes, std::uint64_t secret)
    : part_bytes_(max_bytes / kParts), secret_(secret) {}

SegmentCache::Key SegmentCache::key(const void* owner, std::string_view piece) const {
  const std::uint64_t seed = secret_ ^ reinterpret_cast<std::uintptr_t>(owner);
  const XXH128_hash_t hash = XXH3_128bits_withSeed(piece.data(), piece.size(), seed);
  return {hash.low64, hash.high64};
}

SegmentCache::Ids SegmentCache::find(const Key& key) {
  Part& part = part_of(key);
  const std::lock_guard lock(part.mutex);
  const auto place = part.places.find(key);
  if (place == part.places.end()) return nullptr;
  part.entries.splice(part.entries.begin(), part.entries, place->second);
  return place->second->ids;
}

void SegmentCache::put(const Key& key, Ids ids) {
  const std::size_t bytes = bytes_of(ids);
  if (bytes > part_bytes_ / 2) return;
  // What goes is freed when the lock has been given back.
  std::list<Entry> old;
  Part& part = part_of(key);
  const std::lock_guard lock(part.mutex);
  if (part.places.contains(key)) return;  // another thread has made the same ids meanwhile
  while (part.bytes + bytes > part_bytes_ && !part.entries.empty()) {
    const auto last = std::prev(part.entries.end());
    const std::size_t freed = bytes_of(last->ids);
    part.bytes -= freed;
    bytes_.fetch_sub(freed, std::memory_order_relaxed);
    part.places.erase(last->key);
    old.splice(old.begin(), part.entries, last);
  }
  part.entries.push_front({key, std::move(ids)});
  part.places.emplace(key, part.entries.begin());
  part.bytes += bytes;
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace pointsman
