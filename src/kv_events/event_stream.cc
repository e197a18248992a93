#include "kv_events/event_stream.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kv_events/event_decoder.h"

namespace pointsman {
namespace {

// Blocks between two judgements of whether the events fit together, and how many of them may not.
constexpr std::uint64_t kJudgedBlocks = 512;
constexpr std::uint64_t kMostFaults = kJudgedBlocks / 20;

std::uint64_t digest_of(std::string_view payload) {
  return std::hash<std::string_view>{}(payload);
}

}  // namespace

EventStream::EventStream(const TokenChain& chain, TableBudget& budget, std::string_view world,
                         const Options& options)
    : options_(options), blocks_(chain, budget, options.blocks) {
  blocks_.set_world(world);
  ask();
}

void EventStream::set_engine(std::uint64_t gpu_blocks, bool caches) {
  engine_blocks_ = gpu_blocks;
  caches_ = caches;
  judge();
}

// Whether a batch of that number and of those bytes is among the last ones.
bool EventStream::seen(std::uint64_t number, std::uint64_t digest) const {
  return number < next_ && next_ - number <= kRemembered &&
         digests_[number % kRemembered] == digest;
}

// Wants the batches from the last one on that was seen; all where none was.
void EventStream::ask() {
  if (may_ask()) wanted_ = next_ == 0 ? 0 : next_ - 1;
}

void EventStream::published(std::uint64_t number, std::string_view payload, CacheChanges& changes) {
  if (wanted_ || !take(number, payload, changes)) wait(number, payload);
}

void EventStream::wait(std::uint64_t number, std::string_view payload) {
  if (waiting_.size() >= options_.max_waiting_batches ||
      waiting_bytes_ + payload.size() > options_.max_waiting_bytes) {
    // They will be found missing, and asked for, after the replay.
    waiting_.clear();
    waiting_bytes_ = 0;
    if (payload.size() > options_.max_waiting_bytes) return;
  }
  waiting_.push_back({number, std::string(payload)});
  waiting_bytes_ += payload.size();
}

bool EventStream::take(std::uint64_t number, std::string_view payload, CacheChanges& changes) {
  const std::uint64_t digest = digest_of(payload);
  if (number < next_) {
    const bool of_replay = !last_published_ || number > *last_published_;
    // The engine publishes in order: what a replay brought before comes again only once, later.
    if (seen(number, digest) || (of_replay && next_ - number > kRemembered)) {
      ++counts_.duplicates;
      last_published_ = std::max(last_published_.value_or(0), number);
      return true;
    }
    restart(changes);
    if (wanted_ && number > 0) return false;
    wanted_.reset();
  }
  if (number > next_) {
    if (heard_) ++counts_.gaps;
    ask();
    if (wanted_) return false;
    lose(changes);
  } else if (number == 0) {
    complete_ = true;
  }
  last_published_ = number;
  replays_in_a_row_ = 0;
  apply(number, digest, decode_event_batch(payload, batch_), changes);
  return true;
}

// Takes batch_.
void EventStream::apply(std::uint64_t number, std::uint64_t digest, bool readable,
                        CacheChanges& changes) {
  heard_ = true;
  unverified_ = false;
  next_ = number + 1;
  digests_[number % kRemembered] = digest;
  ++counts_.batches;
  if (!readable) {
    ++counts_.undecodable;
    return lose(changes);
  }
  last_time_ = batch_.time;
  if (batch_.unreadable > 0) {
    counts_.undecodable += batch_.unreadable;
    lose(changes);
  }
  for (const KvEvent& event : batch_.events) {
    const EngineBlocks::Counts before = blocks_.counts();
    blocks_.apply(event, changes);
    if (event.type == KvEvent::Type::kCleared) {
      complete_ = true;
      inconsistent_ = false;
      judged_blocks_ = 0;
      judged_faults_ = 0;
    } else if (event.type == KvEvent::Type::kStored) {
      const EngineBlocks::Counts& after = blocks_.counts();
      judged_blocks_ += event.blocks.size();
      judged_faults_ += after.unplaced - before.unplaced + after.conflicts - before.conflicts +
                        after.refused - before.refused;
      if (after.refused != before.refused) complete_ = false;
    }
  }
  judge();
}

// Whether the events fit together, and whether a gap has been filled.
void EventStream::judge() {
  if (judged_faults_ > kMostFaults) {
    inconsistent_ = true;
    complete_ = false;
  }
  if (judged_blocks_ >= kJudgedBlocks) {
    if (judged_faults_ <= kMostFaults) inconsistent_ = false;
    judged_blocks_ = 0;
    judged_faults_ = 0;
  }
  if (!complete_ && !inconsistent_ && engine_blocks_ > 0 &&
      blocks_.gpu_blocks() >= engine_blocks_ - engine_blocks_ / 10) {
    complete_ = true;
  }
}

bool EventStream::replayed(std::uint64_t number, std::string_view payload, CacheChanges& changes) {
  if (!asked_ || other_engine_) return true;
  const bool readable = number < kMostBatches && decode_event_batch(payload, batch_);
  if (!readable && number != next_) {
    ++counts_.undecodable;
    return false;
  }
  const std::uint64_t digest = digest_of(payload);
  if (std::exchange(first_answer_, false)) {
    if (next_ > 0 && number + 1 == next_ && !seen(number, digest)) {
      // Another engine's batch: this one has restarted. All of its batches are needed, so that this
      // replay is let pass and another one asked for.
      other_engine_ = true;
      return true;
    }
    if (next_ == 0 && number == 0) complete_ = true;
    // The batch that would have shown that it is the same engine is not kept any more.
    if (next_ > 0 && number == next_) lose(changes);
  }
  if (number < next_) return true;
  if (number > next_) lose(changes);
  apply(number, digest, readable, changes);
  return true;
}

void EventStream::replay_ended(CacheChanges& changes) {
  if (!asked_) return;
  ++counts_.replays;
  ++replays_in_a_row_;
  asked_ = false;
  wanted_.reset();
  // Without an answer to the number of a batch that was seen, the engine has not come so far: it is
  // another one, too.
  const bool nothing_came = first_answer_;
  if (other_engine_ || (nothing_came && next_ > 0)) {
    other_engine_ = false;
    restart(changes);
    if (wanted_) return;
  } else if (nothing_came) {
    // It has published nothing so far: its cache is empty.
    complete_ = true;
  }
  heard_ = true;
  unverified_ = false;
  take_waiting(changes);
}

void EventStream::replay_failed(CacheChanges& changes) {
  // Where some of it came, there is more that did not.
  const bool broken_off = asked_ && !first_answer_;
  asked_ = false;
  wanted_.reset();
  other_engine_ = false;
  // What waits is taken as it is; the next gap may ask again.
  replays_in_a_row_ = kMostReplays;
  if (unverified_ || broken_off) lose(changes);
  unverified_ = false;
  take_waiting(changes);
  replays_in_a_row_ = 0;
}

void EventStream::take_waiting(CacheChanges& changes) {
  while (!waiting_.empty() && !wanted_) {
    if (!take(waiting_.front().number, waiting_.front().payload, changes)) return;
    waiting_bytes_ -= waiting_.front().payload.size();
    waiting_.pop_front();
  }
}

// Batches are missed for good.
void EventStream::lose(CacheChanges& changes) {
  ++counts_.losses;
  complete_ = false;
  blocks_.clear(changes);
}

// Another engine process publishes now: nothing of the former one is left.
void EventStream::restart(CacheChanges& changes) {
  ++counts_.restarts;
  blocks_.clear(changes);
  heard_ = false;
  next_ = 0;
  last_published_.reset();
  complete_ = false;
  inconsistent_ = false;
  judged_blocks_ = 0;
  judged_faults_ = 0;
  unverified_ = false;
  ask();
}

void EventStream::revive(CacheChanges& changes) {
  changes.clear();
  blocks_.tell_all(changes);
  reconnected();
}

void EventStream::reconnected() {
  unverified_ = heard_;
  replays_in_a_row_ = 0;
  asked_ = false;
  other_engine_ = false;
  wanted_.reset();
  ask();
}

void EventStream::ask_anew(CacheChanges& changes) {
  blocks_.clear(changes);
  next_ = 0;
  last_published_.reset();
  complete_ = false;
  reconnected();
}

Trust EventStream::trust() const {
  if (!caches_ || blocks_.only_windows()) return Trust::kNone;
  if (!heard_ && may_wait()) return Trust::kNone;
  if (wanted_) return Trust::kReplaying;
  if (!heard_) return Trust::kNone;
  return complete_ && !unverified_ ? Trust::kTrusted : Trust::kGap;
}

std::string_view EventStream::why() const {
  if (!caches_) return "the engine runs without a prefix cache";
  if (blocks_.only_windows()) return "no group of the model's layers keeps whole prefixes";
  switch (trust()) {
    case Trust::kNone:
      return "nothing was heard yet";
    case Trust::kReplaying:
      return "missed events are being asked for";
    case Trust::kTrusted:
      return "";
    case Trust::kGap:
      break;
  }
  if (inconsistent_) return "the events do not fit together";
  if (unverified_) return "the replica was away, and may be another process now";
  return "events were missed for good; the cache has not been filled anew since";
}

}  // namespace pointsman
