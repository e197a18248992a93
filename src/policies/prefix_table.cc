#include "policies/prefix_table.h"

#include <algorithm>
#include <bit>

namespace pointsman {

PrefixTable::PrefixTable(std::size_t capacity) : capacity_(std::max<std::size_t>(capacity, 1)) {
  entries_.reserve(capacity_);
  slots_.assign(std::bit_ceil(2 * capacity_), kNone);
}

void PrefixTable::remember(BlockHash key, std::uint32_t blocks, ReplicaIndex replica) {
  std::size_t slot = slot_of(key);
  if (slots_[slot] == kNone) {
    const std::uint32_t fresh = claim_entry();
    slot = slot_of(key);  // the eviction may have moved things
    slots_[slot] = fresh;
    Entry& entry = entries_[fresh];
    entry.key = key;
    entry.blocks = blocks;
    entry.holders = 0;
    if (blocks >= keys_by_blocks_.size()) keys_by_blocks_.resize(std::size_t{blocks} + 1);
    ++keys_by_blocks_[blocks];
    link_newest(fresh);
  } else {
    unlink(slots_[slot]);
    link_newest(slots_[slot]);
  }
  Entry& entry = entries_[slots_[slot]];
  const auto end = entry.holder.begin() + entry.holders;
  auto at = std::find_if(entry.holder.begin(), end,
                         [&](const Holder& holder) { return holder.replica == replica; });
  if (at == end) {
    if (entry.holders < kHolders) {
      ++entry.holders;
    } else {
      --at;
    }
  }
  std::move_backward(entry.holder.begin(), at, at + 1);
  entry.holder.front() = {replica, epoch_of(replica)};
}

std::size_t PrefixTable::find(BlockHash key, std::array<ReplicaIndex, kHolders>& out) const {
  const std::uint32_t index = slots_[slot_of(key)];
  if (index == kNone) return 0;
  const Entry& entry = entries_[index];
  std::size_t count = 0;
  for (std::size_t i = 0; i < entry.holders; ++i) {
    const Holder& holder = entry.holder[i];
    if (holder.epoch == epoch_of(holder.replica)) out[count++] = holder.replica;
  }
  return count;
}

void PrefixTable::forget(ReplicaIndex replica) {
  if (replica >= epochs_.size()) epochs_.resize(std::size_t{replica} + 1);
  ++epochs_[replica];
}

// The slot that holds the key, or the empty one where it belongs.
std::size_t PrefixTable::slot_of(BlockHash key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = home_of(key);
  while (slots_[slot] != kNone && entries_[slots_[slot]].key != key) slot = (slot + 1) & mask;
  return slot;
}

std::uint32_t PrefixTable::claim_entry() {
  if (size_ < capacity_) {
    entries_.emplace_back();
    ++size_;
    return static_cast<std::uint32_t>(size_ - 1);
  }
  const std::uint32_t victim = oldest_;
  --keys_by_blocks_[entries_[victim].blocks];
  erase_slot(slot_of(entries_[victim].key));
  unlink(victim);
  return victim;
}

// Closes the gap, so that no probe sequence is broken and no tombstones pile up.
void PrefixTable::erase_slot(std::size_t slot) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t gap = slot;
  for (std::size_t next = (gap + 1) & mask; slots_[next] != kNone; next = (next + 1) & mask) {
    const std::size_t home = home_of(entries_[slots_[next]].key);
    // The one at `next` may move to the gap unless its home lies between them.
    if (((next - home) & mask) >= ((next - gap) & mask)) {
      slots_[gap] = slots_[next];
      gap = next;
    }
  }
  slots_[gap] = kNone;
}

void PrefixTable::unlink(std::uint32_t entry) {
  Entry& gone = entries_[entry];
  (gone.newer == kNone ? newest_ : entries_[gone.newer].older) = gone.older;
  (gone.older == kNone ? oldest_ : entries_[gone.older].newer) = gone.newer;
  gone.newer = gone.older = kNone;
}

void PrefixTable::link_newest(std::uint32_t entry) {
  Entry& newest = entries_[entry];
  newest.newer = kNone;
  newest.older = newest_;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

}  // namespace pointsman
