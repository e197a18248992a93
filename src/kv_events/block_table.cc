#include "kv_events/block_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace pointsman {
namespace {

// Places behind the last that is some entry's own.
constexpr std::size_t kTail = 64;
constexpr std::size_t kFirstPlaces = 2 * kTail;

constexpr bool is_full(std::size_t size, std::size_t capacity) {
  return size * 11 >= capacity * 10;
}

// Makes an array longer or shorter and keeps what fits. False, and nothing done, without memory.
template <typename Array>
bool resize(Array& array, std::size_t count) {
  using Element = typename Array::element_type;
  static_assert(std::is_trivially_copyable_v<Element>);
  void* const memory = std::realloc(array.get(), count * sizeof(Element));
  if (memory == nullptr) return false;
  static_cast<void>(array.release());
  array.reset(static_cast<Element*>(memory));
  return true;
}

}  // namespace

void BlockTable::Free::operator()(void* memory) const {
  std::free(memory);
}

BlockTable::BlockTable(std::size_t keys, std::uint64_t seed, TableBudget& budget)
    : keys_each_(std::max<std::size_t>(keys, 1)), seed_(seed), budget_(budget) {}

BlockTable::~BlockTable() {
  budget_.used -= bytes();
}

BlockTable::Mixed BlockTable::mixed(EngineHash hash) const {
  // The finaliser of splitmix64: whoever makes the hashes does not know the seed.
  std::uint64_t z = hash ^ seed_;
  z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
  z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
  z ^= z >> 31;
  const auto tag = static_cast<std::uint32_t>(z >> 32);
  return {tag == kFree ? 1 : tag, static_cast<std::uint32_t>(z)};
}

BlockTable::Place BlockTable::seek(std::uint32_t tag) const {
  Place place = home(tag);
  while (tags_[place] != kFree && tags_[place] < tag) ++place;
  return place;
}

std::optional<BlockTable::Place> BlockTable::find(EngineHash hash) const {
  if (size_ == 0) return std::nullopt;
  const Mixed wanted = mixed(hash);
  for (Place place = seek(wanted.tag); tags_[place] == wanted.tag; ++place) {
    if (entries_[place].rest == wanted.rest) return place;
  }
  return std::nullopt;
}

std::optional<BlockTable::Place> BlockTable::parent(Place place) const {
  const std::uint32_t wanted = entries_[place].parent;
  if (wanted == 0) return std::nullopt;
  const Place at = seek(wanted);
  return tags_[at] == wanted ? std::optional(at) : std::nullopt;
}

std::optional<BlockTable::Place> BlockTable::insert(EngineHash hash,
                                                    std::optional<EngineHash> parent) {
  if (is_full(size_ + 1, capacity_) && !grow()) return std::nullopt;
  const Mixed made = mixed(hash);
  Place place = 0;
  Place free = 0;
  for (;;) {
    place = seek(made.tag);
    free = place;
    while (tags_[free] != kFree) ++free;
    if (free + 1 < places_) break;
    if (!grow()) return std::nullopt;
  }
  move_up(place, free);
  tags_[place] = made.tag;
  entries_[place] = {made.rest, 0, parent ? mixed(*parent).tag : 0};
  ++size_;
  return place;
}

void BlockTable::erase(Place place) {
  --size_;
  // Those behind it move back, up to the first that lies in its own place.
  Place end = place + 1;
  while (tags_[end] != kFree && home(tags_[end]) < end) ++end;
  move_down(place + 1, end);
  tags_[end - 1] = kFree;
}

void BlockTable::clear() {
  budget_.used -= bytes();
  capacity_ = 0;
  places_ = 0;
  size_ = 0;
  tags_.reset();
  entries_.reset();
  keys_.reset();
}

void BlockTable::move_entry(Place from, Place to) {
  tags_[to] = tags_[from];
  entries_[to] = entries_[from];
  std::ranges::copy(keys(from), keys(to).begin());
}

void BlockTable::move_up(Place first, Place end) {
  const std::size_t count = end - first;
  if (count == 0) return;
  std::memmove(&tags_[first + 1], &tags_[first], count * sizeof(tags_[0]));
  std::memmove(&entries_[first + 1], &entries_[first], count * sizeof(entries_[0]));
  std::memmove(keys(first + 1).data(), keys(first).data(), count * keys(first).size_bytes());
}

void BlockTable::move_down(Place first, Place end) {
  const std::size_t count = end - first;
  if (count == 0) return;
  std::memmove(&tags_[first - 1], &tags_[first], count * sizeof(tags_[0]));
  std::memmove(&entries_[first - 1], &entries_[first], count * sizeof(entries_[0]));
  std::memmove(keys(first - 1).data(), keys(first).data(), count * keys(first).size_bytes());
}

bool BlockTable::grow() {
  const std::size_t places = std::max(kFirstPlaces, places_ + places_ / 32 + 8);
  const std::size_t more = (places - places_) * entry_bytes();
  if (budget_.used > budget_.max_bytes || more > budget_.max_bytes - budget_.used) return false;
  if (!resize(tags_, places) || !resize(entries_, places) || !resize(keys_, places * keys_each_)) {
    return false;
  }
  budget_.used += more;
  std::fill(&tags_[places_], &tags_[0] + places, kFree);
  places_ = places;
  // Where the entries at the end need more places than there are behind it, it is put further
  // ahead.
  std::size_t tail = kTail;
  while (!spread(places - tail)) tail = std::min(2 * tail, places);
  return true;
}

// Puts all entries where they belong in a table of this capacity. False where there is no room
// behind it for the last ones and one more; then they are in order and nothing else.
bool BlockTable::spread(std::size_t capacity) {
  capacity_ = capacity;
  Place first = places_;
  for (Place from = places_; from-- > 0;) {
    if (tags_[from] == kFree) continue;
    --first;
    if (from == first) continue;
    move_entry(from, first);
    tags_[from] = kFree;
  }
  Place next = 0;
  for (Place from = first; from < places_; ++from) {
    next = std::max(next, home(tags_[from]));
    if (next > from) return false;
    if (next < from) {
      move_entry(from, next);
      tags_[from] = kFree;
    }
    ++next;
  }
  return next + 1 < places_;
}

// Bits 0-11 phase, 12-15 copies, 16 and 17 slower tiers, 18 left out, 19-31 children.
BlockTable::Facts BlockTable::facts(Place place) const {
  const std::uint32_t bits = entries_[place].facts;
  Facts facts;
  facts.phase = static_cast<std::uint16_t>(bits & kMostPhase);
  facts.copies = static_cast<std::uint8_t>((bits >> 12) & kMostCopies);
  facts.slower[0] = ((bits >> 16) & 1) != 0;
  facts.slower[1] = ((bits >> 17) & 1) != 0;
  facts.left_out = ((bits >> 18) & 1) != 0;
  facts.children = static_cast<std::uint16_t>(bits >> 19);
  return facts;
}

void BlockTable::set_facts(Place place, const Facts& facts) {
  entries_[place].facts =
      facts.phase | (std::uint32_t{facts.copies} << 12) | (std::uint32_t{facts.slower[0]} << 16) |
      (std::uint32_t{facts.slower[1]} << 17) | (std::uint32_t{facts.left_out} << 18) |
      (std::uint32_t{facts.children} << 19);
}

}  // namespace pointsman
