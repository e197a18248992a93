#include "sim/kv_model.h"

#include <algorithm>
#include <cassert>

namespace pointsman::sim {

KvModel::KvModel(std::uint32_t block_count) : block_count_(block_count) {
  assert(block_count > 0);
  free_empty_blocks_at_back(block_count);
}

KvModel::Hit KvModel::find(std::span<const ChainRun> chain, std::uint32_t limit) const {
  Hit hit;
  for (const ChainRun& link : chain) {
    const std::uint32_t wanted = std::min(link.blocks, limit - hit.blocks);
    if (wanted == 0) break;
    const std::uint32_t place = by_id_.find(link.id);
    if (place == kNone) break;
    const Run& run = runs_[place];
    const std::uint32_t found = std::min(wanted, run.cached);
    hit.blocks += found;
    hit.free += found - std::min(found, run.top.length);
    if (found < wanted) break;
  }
  return hit;
}

bool KvModel::admit(KvHolding& holding, Hit hit, std::uint32_t total) {
  assert(holding.blocks_ == 0 && hit.blocks <= total);
  const std::uint32_t fresh = total - hit.blocks;
  if (fresh + hit.free > free_count_) return false;

  join(holding);
  for (std::uint32_t left = hit.blocks; left > 0;) {
    const std::uint32_t size = holding.chain_[holding.filled_].blocks;
    const std::uint32_t found = std::min(left, size);
    lengthen_reference(holding.places_[holding.filled_], 0, found);
    left -= found;
    holding.in_filled_ = found;
    if (found < size) break;
    ++holding.filled_;
    holding.in_filled_ = 0;
  }
  holding.findable_ = hit.blocks;
  take_front(fresh);
  holding.blocks_ = total;
  return true;
}

bool KvModel::grow(KvHolding& holding, std::uint32_t total) {
  if (total <= holding.blocks_) return true;
  const std::uint32_t fresh = total - holding.blocks_;
  if (fresh > free_count_) return false;
  take_front(fresh);
  holding.blocks_ = total;
  return true;
}

// Makes more of the chain's runs findable. Past the end of the chain there is nothing to fill.
void KvModel::fill(KvHolding& holding, std::uint32_t count) {
  assert(count <= holding.blocks_);
  while (holding.findable_ < count && holding.filled_ < holding.places_.size()) {
    const std::uint32_t size = holding.chain_[holding.filled_].blocks;
    const std::uint32_t from = holding.in_filled_;
    const std::uint32_t to = from + std::min(size - from, count - holding.findable_);
    const std::uint32_t place = holding.places_[holding.filled_];
    const std::uint32_t cached = runs_[place].cached;
    const std::uint32_t equal = cached > from ? std::min(to, cached) - from : 0;
    lengthen_reference(place, from, to);
    if (equal > 0) free_empty_blocks_at_front(equal);
    holding.findable_ += to - from;
    holding.in_filled_ = to;
    if (to == size) {
      ++holding.filled_;
      holding.in_filled_ = 0;
    }
  }
}

bool KvModel::take(std::uint64_t count) {
  if (count > free_count_) return false;
  take_front(static_cast<std::uint32_t>(count));
  return true;
}

void KvModel::give(KvHolding& holding, std::uint32_t total) {
  holding.blocks_ = std::max(holding.blocks_, total);
}

bool KvModel::fills_alone(const KvHolding& holding) const {
  if (holding.filled_ == holding.places_.size()) return true;
  if (holding.filled_ + 1 < holding.places_.size()) return false;
  const Run& run = runs_[holding.places_[holding.filled_]];
  return run.users == 1 && run.cached == holding.in_filled_;
}

void KvModel::set_filler(KvHolding& holding, std::uint32_t who) {
  assert(holding.noted_ == kNone);
  if (holding.filled_ == holding.places_.size()) return;
  holding.noted_ = holding.places_[holding.filled_];
  runs_[holding.noted_].filler = who;
}

void KvModel::clear_filler(KvHolding& holding) {
  if (holding.noted_ == kNone) return;
  runs_[holding.noted_].filler = kNobody;
  holding.noted_ = kNone;
}

std::uint32_t KvModel::filler(std::span<const ChainRun> chain) const {
  for (const ChainRun& link : chain) {
    const std::uint32_t place = by_id_.find(link.id);
    if (place != kNone && runs_[place].filler != kNobody) return runs_[place].filler;
  }
  return kNobody;
}

void KvModel::release(KvHolding& holding) {
  clear_filler(holding);
  const std::uint32_t unfilled = holding.blocks_ - holding.findable_;
  if (unfilled > 0) free_empty_blocks_at_back(unfilled);
  for (std::size_t i = holding.places_.size(); i-- > 0;) {
    const std::uint32_t place = holding.places_[i];
    if (i <= holding.filled_) {
      Run& run = runs_[place];
      const std::uint32_t length =
          i < holding.filled_ ? holding.chain_[i].blocks : holding.in_filled_;
      const std::uint32_t top = run.top.length;
      drop_reference(run, length);
      if (run.top.length < top) free_run_blocks(place, run.top.length, top);
    }
    leave(place);
  }
  holding.places_.clear();
  holding.filled_ = 0;
  holding.in_filled_ = 0;
  holding.findable_ = 0;
  holding.blocks_ = 0;
}

void KvModel::clear() {
  assert(free_count_ == block_count_);
  for (std::uint32_t place = 0; place < runs_.size(); ++place) {
    if (runs_[place].cached > 0) set_cached(place, 0);
  }
  by_id_.clear();
  runs_.clear();
  unused_runs_.clear();
  pieces_.clear();
  unused_pieces_.clear();
  front_ = kNone;
  back_ = kNone;
  free_count_ = 0;
  free_empty_blocks_at_back(block_count_);
}

// Enters the holding as a user of all runs of its chain.
void KvModel::join(KvHolding& holding) {
  for (const ChainRun& link : holding.chain_) {
    std::uint32_t place = by_id_.find(link.id);
    if (place == kNone) place = new_run(link.id);
    ++runs_[place].users;
    holding.places_.push_back(place);
  }
}

std::uint32_t KvModel::new_run(std::uint64_t id) {
  std::uint32_t place = 0;
  if (unused_runs_.empty()) {
    place = static_cast<std::uint32_t>(runs_.size());
    runs_.emplace_back();
  } else {
    place = unused_runs_.back();
    unused_runs_.pop_back();
  }
  runs_[place].id = id;
  by_id_.insert(id, place);
  return place;
}

void KvModel::leave(std::uint32_t place) {
  Run& run = runs_[place];
  if (--run.users == 0 && run.cached == 0) drop_run(place);
}

void KvModel::drop_run(std::uint32_t place) {
  Run& run = runs_[place];
  by_id_.erase(run.id);
  run.change = kNoChange;
  unused_runs_.push_back(place);
}

void KvModel::set_cached(std::uint32_t place, std::uint32_t blocks) {
  Run& run = runs_[place];
  run.cached = blocks;
  if (!notes_changes_) return;
  if (run.change == kNoChange) {
    run.change = changes_.size();
    changes_.push_back({run.id, blocks});
  } else {
    changes_[run.change].blocks = blocks;
  }
}

std::span<const ChainRun> KvModel::take_changes() {
  taken_changes_.swap(changes_);
  changes_.clear();
  for (const ChainRun& change : taken_changes_) {
    const std::uint32_t place = by_id_.find(change.id);
    if (place != kNone) runs_[place].change = kNoChange;
  }
  return taken_changes_;
}

void KvModel::add_reference(Run& run, std::uint32_t length) {
  if (length == 0) return;
  if (length == run.top.length) {
    ++run.top.requests;
  } else if (length > run.top.length) {
    if (run.top.requests > 0) run.shorter.push_back(run.top);
    run.top = {length, 1};
  } else {
    const auto at = std::ranges::lower_bound(run.shorter, length, {}, &Extent::length);
    if (at != run.shorter.end() && at->length == length) {
      ++at->requests;
    } else {
      run.shorter.insert(at, {length, 1});
    }
  }
}

void KvModel::drop_reference(Run& run, std::uint32_t length) {
  if (length == 0) return;
  if (length == run.top.length) {
    if (--run.top.requests > 0) return;
    run.top = {};
    if (run.shorter.empty()) return;
    run.top = run.shorter.back();
    run.shorter.pop_back();
  } else {
    const auto at = std::ranges::lower_bound(run.shorter, length, {}, &Extent::length);
    assert(at != run.shorter.end() && at->length == length);
    if (--at->requests == 0) run.shorter.erase(at);
  }
}

// One request's reference to a run grows. Blocks that were free leave the queue; blocks past the
// findable ones become findable.
void KvModel::lengthen_reference(std::uint32_t place, std::uint32_t from, std::uint32_t to) {
  Run& run = runs_[place];
  const std::uint32_t top = run.top.length;
  drop_reference(run, from);
  add_reference(run, to);
  if (to > top && run.cached > top) take_pieces(run, std::min(to, run.cached));
  if (to > run.cached) set_cached(place, to);
}

// Allocates: the front of the queue loses what it held.
void KvModel::take_front(std::uint32_t count) {
  assert(count <= free_count_);
  free_count_ -= count;
  while (count > 0) {
    Piece& piece = pieces_[front_];
    const std::uint32_t taken = std::min(count, piece.high - piece.low);
    piece.high -= taken;
    count -= taken;
    const std::uint32_t place = piece.run;
    if (place != kNone) {
      assert(runs_[place].cached == piece.high + taken);
      set_cached(place, piece.high);
    }
    if (piece.low == piece.high) remove(front_);
    if (place != kNone && runs_[place].cached == 0 && runs_[place].users == 0) drop_run(place);
  }
}

// Takes the free blocks of a run below `up_to` out of the queue.
void KvModel::take_pieces(Run& run, std::uint32_t up_to) {
  while (run.lowest_piece != kNone && pieces_[run.lowest_piece].low < up_to) {
    Piece& piece = pieces_[run.lowest_piece];
    if (piece.high > up_to) {
      free_count_ -= up_to - piece.low;
      piece.low = up_to;
      return;
    }
    free_count_ -= piece.high - piece.low;
    remove(run.lowest_piece);
  }
}

// Appends blocks of a run that lie right below its lowest free piece.
void KvModel::free_run_blocks(std::uint32_t place, std::uint32_t low, std::uint32_t high) {
  Run& run = runs_[place];
  free_count_ += high - low;
  if (back_ != kNone && back_ == run.lowest_piece) {
    assert(pieces_[back_].low == high);
    pieces_[back_].low = low;
    return;
  }
  const std::uint32_t piece = new_piece(place, low, high);
  pieces_[piece].above = run.lowest_piece;
  if (run.lowest_piece != kNone) pieces_[run.lowest_piece].below = piece;
  run.lowest_piece = piece;
  append(piece);
}

void KvModel::free_empty_blocks_at_back(std::uint32_t count) {
  free_count_ += count;
  if (back_ != kNone && pieces_[back_].run == kNone) {
    pieces_[back_].high += count;
  } else {
    append(new_piece(kNone, 0, count));
  }
}

void KvModel::free_empty_blocks_at_front(std::uint32_t count) {
  free_count_ += count;
  if (front_ != kNone && pieces_[front_].run == kNone) {
    pieces_[front_].high += count;
    return;
  }
  const std::uint32_t piece = new_piece(kNone, 0, count);
  pieces_[piece].next = front_;
  (front_ == kNone ? back_ : pieces_[front_].previous) = piece;
  front_ = piece;
}

std::uint32_t KvModel::new_piece(std::uint32_t run, std::uint32_t low, std::uint32_t high) {
  std::uint32_t piece = 0;
  if (unused_pieces_.empty()) {
    piece = static_cast<std::uint32_t>(pieces_.size());
    pieces_.emplace_back();
  } else {
    piece = unused_pieces_.back();
    unused_pieces_.pop_back();
  }
  pieces_[piece] = {.run = run, .low = low, .high = high};
  return piece;
}

void KvModel::append(std::uint32_t piece) {
  pieces_[piece].previous = back_;
  (back_ == kNone ? front_ : pieces_[back_].next) = piece;
  back_ = piece;
}

void KvModel::remove(std::uint32_t index) {
  const Piece& piece = pieces_[index];
  (piece.previous == kNone ? front_ : pieces_[piece.previous].next) = piece.next;
  (piece.next == kNone ? back_ : pieces_[piece.next].previous) = piece.previous;
  if (piece.above != kNone) pieces_[piece.above].below = piece.below;
  if (piece.below != kNone) pieces_[piece.below].above = piece.above;
  if (piece.run != kNone && runs_[piece.run].lowest_piece == index) {
    runs_[piece.run].lowest_piece = piece.above;
  }
  unused_pieces_.push_back(index);
}

}  // namespace pointsman::sim
