#include "kv_events/block_table.h"

#include <algorithm>
#include <utility>

namespace pointsman {
namespace {

constexpr std::size_t kFirstCapacity = 64;

// The engine's hash 0 stands for itself nowhere else.
constexpr EngineHash kStandInForZero = 0x9E37'79B9'7F4A'7C15;

EngineHash stored_form(EngineHash hash) {
  return hash == 0 ? kStandInForZero : hash;
}

}  // namespace

BlockTable::BlockTable(std::size_t keys, std::uint64_t seed, TableBudget& budget)
    : keys_each_(std::max<std::size_t>(keys, 1)), seed_(seed), budget_(budget) {}

BlockTable::~BlockTable() {
  budget_.used -= bytes();
}

std::uint32_t BlockTable::tag_of(EngineHash stored) const {
  // The finaliser of splitmix64: whoever makes the hashes does not know the seed.
  std::uint64_t z = stored ^ seed_;
  z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
  z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
  const auto tag = static_cast<std::uint32_t>(z >> 32);
  return tag == 0 ? 1 : tag;
}

std::optional<BlockTable::Place> BlockTable::find(EngineHash hash) const {
  if (size_ == 0) return std::nullopt;
  const EngineHash wanted = stored_form(hash);
  Place place = home(tag_of(wanted));
  while (hashes_[place] != kFree) {
    if (hashes_[place] == wanted) return place;
    place = after(place);
  }
  return std::nullopt;
}

std::optional<BlockTable::Place> BlockTable::parent(Place place) const {
  const std::uint32_t wanted = parents_[place];
  if (wanted == 0) return std::nullopt;
  Place at = home(wanted);
  while (hashes_[at] != kFree) {
    if (tag_of(hashes_[at]) == wanted) return at;
    at = after(at);
  }
  return std::nullopt;
}

std::optional<BlockTable::Place> BlockTable::insert(EngineHash hash,
                                                    std::optional<EngineHash> parent) {
  if (size_ + 1 > capacity_ - capacity_ / 8 && !grow()) return std::nullopt;
  const EngineHash wanted = stored_form(hash);
  Place place = home(tag_of(wanted));
  while (hashes_[place] != kFree) place = after(place);
  hashes_[place] = wanted;
  facts_[place] = 0;
  parents_[place] = parent ? tag_of(stored_form(*parent)) : 0;
  ++size_;
  return place;
}

void BlockTable::erase(Place place) {
  --size_;
  Place hole = place;
  for (Place next = after(hole); hashes_[next] != kFree; next = after(next)) {
    // An entry may move back to the hole unless its home lies behind it.
    if (distance(home(tag_of(hashes_[next])), next) < distance(hole, next)) continue;
    move_entry(next, hole);
    hole = next;
  }
  hashes_[hole] = kFree;
}

void BlockTable::clear() {
  budget_.used -= bytes();
  capacity_ = 0;
  size_ = 0;
  hashes_.reset();
  facts_.reset();
  parents_.reset();
  keys_.reset();
}

void BlockTable::move_entry(Place from, Place to) {
  hashes_[to] = hashes_[from];
  facts_[to] = facts_[from];
  parents_[to] = parents_[from];
  std::ranges::copy(keys(from), keys(to).begin());
}

bool BlockTable::grow() {
  const std::size_t capacity = std::max(kFirstCapacity, capacity_ + capacity_ / 8);
  const std::size_t more = (capacity - capacity_) * entry_bytes();
  if (budget_.used > budget_.max_bytes || more > budget_.max_bytes - budget_.used) return false;
  budget_.used += more;
  const std::size_t former = capacity_;
  const std::unique_ptr<EngineHash[]> hashes =
      std::exchange(hashes_, std::make_unique<EngineHash[]>(capacity));
  const std::unique_ptr<std::uint32_t[]> facts =
      std::exchange(facts_, std::make_unique_for_overwrite<std::uint32_t[]>(capacity));
  const std::unique_ptr<std::uint32_t[]> parents =
      std::exchange(parents_, std::make_unique_for_overwrite<std::uint32_t[]>(capacity));
  const std::unique_ptr<BlockHash[]> keys =
      std::exchange(keys_, std::make_unique_for_overwrite<BlockHash[]>(capacity * keys_each_));
  capacity_ = capacity;
  for (Place from = 0; from < former; ++from) {
    if (hashes[from] == kFree) continue;
    Place place = home(tag_of(hashes[from]));
    while (hashes_[place] != kFree) place = after(place);
    hashes_[place] = hashes[from];
    facts_[place] = facts[from];
    parents_[place] = parents[from];
    std::copy_n(keys.get() + from * keys_each_, keys_each_, keys_.get() + place * keys_each_);
  }
  return true;
}

// Bits 0-11 phase, 12-15 copies, 16 and 17 slower tiers, 18 left out, 19-31 children.
BlockTable::Facts BlockTable::facts(Place place) const {
  const std::uint32_t bits = facts_[place];
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
  facts_[place] = facts.phase | (std::uint32_t{facts.copies} << 12) |
                  (std::uint32_t{facts.slower[0]} << 16) | (std::uint32_t{facts.slower[1]} << 17) |
                  (std::uint32_t{facts.left_out} << 18) | (std::uint32_t{facts.children} << 19);
}

}  // namespace pointsman
