#include "core/holder_table.h"

#include <algorithm>
#include <bit>

namespace pointsman {
namespace {

// Entries of a segment, on average; single ones hold half to twice as many.
constexpr std::uint64_t kSegmentEntries = 512;
constexpr std::uint64_t kFewestEntries = 200;
constexpr std::uint32_t kFirstCapacity = 8;
constexpr std::uint32_t kTail = 16;
// Entries that a search looks at together.
constexpr std::uint32_t kWindow = 4;

// The finaliser of splitmix64.
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// What a segment takes, with the allocator's own bytes.
constexpr std::size_t segment_bytes(std::uint32_t capacity) {
  return (std::size_t{capacity} + kTail) * 16 + 16;
}

// A segment is seven eighths full at most, and at its fullest before it grows by a tenth.
constexpr bool is_full(std::uint32_t size, std::uint32_t capacity) {
  return std::uint64_t{size} * 8 >= std::uint64_t{capacity} * 7;
}
constexpr std::uint32_t next_capacity(std::uint32_t capacity) {
  return capacity + capacity / 10 + 2;
}
// For what a segment is made anew with.
constexpr std::uint32_t capacity_for(std::uint32_t size) {
  return std::max(kFirstCapacity, size + size / 5 + 4);
}

}  // namespace

// Fills a new segment with entries given in the order of their hashes.
class HolderTable::Filler {
 public:
  explicit Filler(Segment& segment) : segment_(segment) {}

  void put(const Entry& entry) {
    const std::uint32_t place = std::max(next_, home(segment_, entry.hash));
    if (place + kWindow >= segment_.capacity + kTail) {
      fits_ = false;
      return;
    }
    segment_.entries[place] = entry;
    next_ = place + 1;
    ++segment_.size;
  }
  void put_all(const Segment& from) {
    for (std::uint32_t i = 0; i < from.capacity + kTail; ++i) {
      if (from.entries[i].holders != 0) put(from.entries[i]);
    }
  }
  [[nodiscard]] bool fits() const { return fits_; }

 private:
  Segment& segment_;
  std::uint32_t next_ = 0;
  bool fits_ = true;
};

HolderTable::HolderTable(std::uint64_t seed) : seed_(seed) {
  Segment first;
  rebuild(first, kFirstCapacity, ~std::size_t{0}, [](Filler&) {});
  segments_.push_back(first);
}

HolderTable::~HolderTable() {
  for (const Segment& segment : segments_) delete[] segment.entries;
}

std::uint64_t HolderTable::hash_of(BlockHash block) const {
  return mix(block ^ seed_);
}

std::size_t HolderTable::segment_of(std::uint64_t hash) const {
  const std::size_t segment = hash & (2 * level_ - 1);
  return segment < segments_.size() ? segment : segment & (level_ - 1);
}

// The upper half of the hash, as a fraction of the segment: places have the order of hashes.
std::uint32_t HolderTable::home(const Segment& segment, std::uint64_t hash) {
  return static_cast<std::uint32_t>(((hash >> 32) * segment.capacity) >> 32);
}

// Where the hash is, or else where it would be put.
std::uint32_t HolderTable::place_of(const Segment& segment, std::uint64_t hash) {
  std::uint32_t place = home(segment, hash);
  while (segment.entries[place].holders != 0 && segment.entries[place].hash < hash) ++place;
  return place;
}

HolderTable::Holders HolderTable::find(BlockHash block) const {
  const std::uint64_t hash = hash_of(block);
  const Segment& segment = segments_[segment_of(hash)];
  // A few at a time without asking after each whether to go on: the answer would be as good as
  // random, and a wrong guess costs the processor more than looking at all of them.
  const Entry* entries = segment.entries + home(segment, hash);
  for (;; entries += kWindow) {
    Holders found = 0;
    for (std::uint32_t i = 0; i < kWindow; ++i) {
      found |= entries[i].holders & (Holders{0} - static_cast<Holders>(entries[i].hash == hash));
    }
    const Entry& last = entries[kWindow - 1];
    if (found != 0 || last.holders == 0 || last.hash >= hash) return found;
  }
}

void HolderTable::expect(BlockHash block) const {
  const std::uint64_t hash = hash_of(block);
  const Segment& segment = segments_[segment_of(hash)];
  const Entry* const entries = segment.entries + home(segment, hash);
  __builtin_prefetch(entries);
  __builtin_prefetch(entries + kWindow - 1);
}

HolderTable::Added HolderTable::add(BlockHash block, std::uint32_t holder, std::size_t room) {
  const std::uint64_t hash = hash_of(block);
  const Holders bit = Holders{1} << holder;
  Segment& segment = segments_[segment_of(hash)];
  std::uint32_t place = place_of(segment, hash);
  Entry& entry = segment.entries[place];
  if (entry.holders != 0 && entry.hash == hash) {
    if ((entry.holders & bit) != 0) return Added::kHeld;
    entry.holders |= bit;
    return Added::kNew;
  }
  while (is_full(segment.size, segment.capacity) || !insert(segment, place, {hash, bit})) {
    if (!grow(segment, room)) return Added::kNoRoom;
    place = place_of(segment, hash);
  }
  ++size_;
  if (size_ > segments_.size() * kSegmentEntries) split(room);
  return Added::kNew;
}

bool HolderTable::remove(BlockHash block, std::uint32_t holder) {
  const std::uint64_t hash = hash_of(block);
  const Holders bit = Holders{1} << holder;
  Segment& segment = segments_[segment_of(hash)];
  const std::uint32_t place = place_of(segment, hash);
  Entry& entry = segment.entries[place];
  if (entry.hash != hash || (entry.holders & bit) == 0) return false;
  entry.holders &= ~bit;
  if (entry.holders != 0) return true;
  erase(segment, place);
  --size_;
  shrink(segment);
  if (has_too_many_segments()) merge();
  return true;
}

// False where the entries up to the segment's end leave no room.
bool HolderTable::insert(Segment& segment, std::uint32_t place, const Entry& entry) {
  std::uint32_t empty = place;
  while (segment.entries[empty].holders != 0) ++empty;
  if (empty + kWindow >= segment.capacity + kTail) return false;
  std::move_backward(segment.entries + place, segment.entries + empty, segment.entries + empty + 1);
  segment.entries[place] = entry;
  ++segment.size;
  return true;
}

void HolderTable::erase(Segment& segment, std::uint32_t place) {
  Entry* const entries = segment.entries;
  while (entries[place + 1].holders != 0 && home(segment, entries[place + 1].hash) <= place) {
    entries[place] = entries[place + 1];
    ++place;
  }
  entries[place] = {};
  --segment.size;
}

// Puts a segment of at least this capacity in the place of `segment`, with what `put` gives. False,
// and nothing done, where there is no room for it.
template <typename Put>
bool HolderTable::rebuild(Segment& segment, std::uint32_t capacity, std::size_t room, Put&& put) {
  for (;; capacity = next_capacity(capacity)) {
    if (segment_bytes(capacity) > room) return false;
    Segment made{new Entry[capacity + kTail], capacity, 0};
    Filler filler(made);
    put(filler);
    if (!filler.fits()) {
      delete[] made.entries;
      continue;
    }
    release(segment);
    segment = made;
    entry_bytes_ += segment_bytes(capacity);
    return true;
  }
}

void HolderTable::release(Segment& segment) {
  if (segment.entries == nullptr) return;
  delete[] segment.entries;
  entry_bytes_ -= segment_bytes(segment.capacity);
  segment.entries = nullptr;
}

bool HolderTable::grow(Segment& segment, std::size_t room) {
  return rebuild(segment, next_capacity(segment.capacity), room,
                 [&](Filler& filler) { filler.put_all(segment); });
}

void HolderTable::shrink(Segment& segment) {
  if (segment.capacity <= kFirstCapacity || segment.size * std::uint64_t{2} >= segment.capacity) {
    return;
  }
  rebuild(segment, capacity_for(segment.size), segment_bytes(segment.capacity),
          [&](Filler& filler) { filler.put_all(segment); });
}

// Parts the next segment in turn in two. Where there is no room it may as well stay as it is.
void HolderTable::split(std::size_t room) {
  const std::size_t number = segments_.size();
  if (number == segments_.capacity()) {
    const std::size_t directory = 2 * number * sizeof(Segment);
    if (directory >= room) return;
    segments_.reserve(2 * number);
    room -= directory;
  }
  Segment& from = segments_[number - level_];
  const std::uint64_t bit = level_;
  std::uint32_t upper_size = 0;
  for (std::uint32_t i = 0; i < from.capacity + kTail; ++i) {
    if (from.entries[i].holders != 0 && (from.entries[i].hash & bit) != 0) ++upper_size;
  }
  const auto those_with = [&](std::uint64_t wanted) {
    return [&from, bit, wanted](Filler& filler) {
      for (std::uint32_t i = 0; i < from.capacity + kTail; ++i) {
        const Entry& entry = from.entries[i];
        if (entry.holders != 0 && (entry.hash & bit) == wanted) filler.put(entry);
      }
    };
  };
  Segment upper;
  if (!rebuild(upper, capacity_for(upper_size), room, those_with(bit))) return;
  const std::size_t taken = segment_bytes(upper.capacity);
  if (taken >= room ||
      !rebuild(from, capacity_for(from.size - upper_size), room - taken, those_with(0))) {
    release(upper);
    return;
  }
  segments_.push_back(upper);
  if (segments_.size() == 2 * level_) level_ *= 2;
}

// Puts the last segment back to where it came from.
void HolderTable::merge() {
  const std::size_t last = segments_.size() - 1;
  const std::size_t level = std::bit_floor(last);
  Segment& upper = segments_[last];
  Segment& lower = segments_[last - level];
  // One of the two may have been swept already and the other not.
  take_out(upper);
  take_out(lower);
  rebuild(lower, capacity_for(lower.size + upper.size), ~std::size_t{0}, [&](Filler& filler) {
    std::uint32_t i = 0;
    std::uint32_t k = 0;
    const auto next = [](const Segment& segment, std::uint32_t& at) {
      while (at < segment.capacity + kTail && segment.entries[at].holders == 0) ++at;
      return at < segment.capacity + kTail;
    };
    for (;;) {
      const bool in_lower = next(lower, i);
      const bool in_upper = next(upper, k);
      if (!in_lower && !in_upper) return;
      const bool from_lower =
          in_lower && (!in_upper || lower.entries[i].hash < upper.entries[k].hash);
      filler.put(from_lower ? lower.entries[i++] : upper.entries[k++]);
    }
  });
  release(upper);
  segments_.pop_back();
  if (segments_.size() * 4 < segments_.capacity()) segments_.shrink_to_fit();
  level_ = level;
}

// Takes the holders that are being swept out of a segment.
void HolderTable::take_out(Segment& segment) {
  if (gone_ == 0) return;
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i < segment.capacity + kTail; ++i) {
    Entry entry = segment.entries[i];
    if (entry.holders == 0) continue;
    segment.entries[i] = {};
    entry.holders &= ~gone_;
    if (entry.holders == 0) {
      --segment.size;
      --size_;
      continue;
    }
    // Never behind where it was: there are only fewer before it.
    next = std::max(next, home(segment, entry.hash));
    segment.entries[next++] = entry;
  }
}

void HolderTable::begin_sweep(Holders gone) {
  gone_ = gone;
  swept_ = 0;
}

bool HolderTable::sweep(std::size_t blocks) {
  if (gone_ == 0) return true;
  std::size_t done = 0;
  for (; swept_ < segments_.size() && done < blocks; ++swept_) {
    Segment& segment = segments_[swept_];
    done += std::max<std::uint32_t>(segment.size, 1);
    take_out(segment);
    shrink(segment);
  }
  // What is left may need fewer segments. A merge looks at two of them, nearly empty.
  while (swept_ >= segments_.size() && has_too_many_segments() && done < blocks) {
    merge();
    done += kFewestEntries;
  }
  if (swept_ < segments_.size() || has_too_many_segments()) return false;
  gone_ = 0;
  return true;
}

bool HolderTable::has_too_many_segments() const {
  return segments_.size() > 1 && size_ < segments_.size() * kFewestEntries;
}

std::size_t HolderTable::bytes() const {
  return sizeof(HolderTable) + segments_.capacity() * sizeof(Segment) + entry_bytes_;
}

std::uint64_t HolderTable::held_by(std::uint32_t holder) const {
  std::uint64_t sum = 0;
  for (const Segment& segment : segments_) {
    for (std::uint32_t i = 0; i < segment.capacity + kTail; ++i) {
      sum += segment.entries[i].holders >> holder & 1;
    }
  }
  return sum;
}

bool HolderTable::consistent() const {
  std::uint64_t size = 0;
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    const Entry* last = nullptr;
    std::uint32_t held = 0;
    for (std::uint32_t i = 0; i < segment.capacity + kTail; ++i) {
      const Entry& entry = segment.entries[i];
      if (entry.holders == 0) continue;
      ++held;
      if (segment_of(entry.hash) != s || place_of(segment, entry.hash) != i) return false;
      if (last != nullptr && last->hash >= entry.hash) return false;
      last = &entry;
    }
    if (held != segment.size || held > segment.capacity) return false;
    if (last != nullptr && last + kWindow >= segment.entries + segment.capacity + kTail) {
      return false;
    }
    size += held;
    bytes += segment_bytes(segment.capacity);
  }
  return size == size_ && bytes == entry_bytes_ && std::bit_floor(segments_.size()) == level_;
}

}  // namespace pointsman
