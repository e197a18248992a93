#include "sim/kv_model.h"

#include <cassert>

namespace pointsman::sim {

KvModel::KvModel(std::size_t block_count) : blocks_(block_count) {
  assert(block_count > 0 && block_count < kNone);
  for (BlockId id = 0; id < block_count; ++id) push_back(id);
}

std::size_t KvModel::cached_prefix(std::span<const BlockHash> chain) const {
  std::size_t length = 0;
  while (length < chain.size() && by_hash_.contains(chain[length])) ++length;
  return length;
}

bool KvModel::grow(std::vector<BlockId>& blocks, std::span<const BlockHash> chain, std::size_t hit,
                   std::size_t total) {
  assert(hit == 0 || blocks.empty());
  if (total <= blocks.size()) return true;

  std::size_t needed = total - blocks.size() - hit;
  for (const BlockHash hash : chain.first(hit)) {
    // A cached block that nobody references is taken out of the free queue as well.
    if (blocks_[by_hash_.find(hash)->second].references == 0) ++needed;
  }
  if (needed > free_count_) return false;

  blocks.reserve(total);
  for (const BlockHash hash : chain.first(hit)) {
    const BlockId id = by_hash_.find(hash)->second;
    if (blocks_[id].references++ == 0) unlink(id);
    blocks.push_back(id);
  }
  while (blocks.size() < total) blocks.push_back(take_front());
  return true;
}

void KvModel::publish(BlockId block, BlockHash hash) {
  assert(hash != 0 && blocks_[block].references > 0);
  if (blocks_[block].hash != 0) return;
  if (by_hash_.emplace(hash, block).second) blocks_[block].hash = hash;
}

void KvModel::release(std::vector<BlockId>& blocks) {
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
    assert(blocks_[*it].references > 0);
    if (--blocks_[*it].references == 0) push_back(*it);
  }
  blocks.clear();
}

void KvModel::push_back(BlockId id) {
  Block& block = blocks_[id];
  block.previous = back_;
  block.next = kNone;
  (back_ == kNone ? front_ : blocks_[back_].next) = id;
  back_ = id;
  ++free_count_;
}

void KvModel::unlink(BlockId id) {
  Block& block = blocks_[id];
  (block.previous == kNone ? front_ : blocks_[block.previous].next) = block.next;
  (block.next == kNone ? back_ : blocks_[block.next].previous) = block.previous;
  --free_count_;
}

BlockId KvModel::take_front() {
  const BlockId id = front_;
  unlink(id);
  Block& block = blocks_[id];
  if (block.hash != 0) {
    by_hash_.erase(block.hash);
    block.hash = 0;
  }
  block.references = 1;
  return id;
}

}  // namespace pointsman::sim
