#include "core/engine_caches.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pointsman {
namespace {

using Holders = HolderTable::Holders;

constexpr std::uint32_t kNoUnit = ~std::uint32_t{0};
// How far ahead of its reading a block's place is called for.
constexpr std::size_t kAhead = 16;
// Blocks looked at by a sweep per call: some microseconds.
constexpr std::size_t kSweepBlocks = 1'024;
// Kept free: what a table that shrinks takes for the moment of copying.
constexpr std::size_t kSlack = std::size_t{64} << 10;
// For what was sent lately.
constexpr std::size_t kMostSentBytes = std::size_t{1} << 20;
constexpr std::size_t kFewestSentBytes = std::size_t{128} << 10;

// For one generation of what was sent lately.
constexpr std::size_t sent_bytes(std::size_t max_bytes) {
  return std::min(kMostSentBytes, max_bytes / 16);
}
// And for what was dropped after that.
constexpr std::size_t drop_bytes(std::size_t max_bytes) {
  return sent_bytes(max_bytes) / 16;
}

template <typename Visit>
void for_each_bit(Holders bits, Visit&& visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::uint32_t>(std::countr_zero(bits)));
}

}  // namespace

Holders EngineCaches::Bank::find(BlockHash block, std::size_t level) const {
  Holders found = 0;
  for (std::size_t tier = 0; tier <= level && tier < tier_count; ++tier) {
    if (tiers[tier] != nullptr) found |= tiers[tier]->find(block);
  }
  return found;
}

void EngineCaches::Bank::expect(BlockHash block, std::size_t level) const {
  for (std::size_t tier = 0; tier <= level && tier < tier_count; ++tier) {
    if (tiers[tier] != nullptr) tiers[tier]->expect(block);
  }
}

EngineCaches::EngineCaches(const Options& options) : options_(options) {}

// --- What the engines say

bool EngineCaches::store(const EngineCache& cache, std::optional<BlockHash> before,
                         std::span<const BlockHash> blocks, std::vector<BlockHash>* again) {
  sweep(kSweepBlocks);
  if (cache.rank >= kMaxRanks || blocks.empty()) return true;
  ReplicaState* const state = state_of(cache.replica);
  if (state == nullptr) return true;
  if (state->shut_out) return false;
  state->stored_turn = turns_;
  std::uint32_t number = find_unit(*state, cache.rank);
  if (number == kNoUnit) number = make_unit(cache.replica, cache.rank);
  if (number == kNoUnit) {
    overflow(cache.replica);
    return false;
  }
  Bank& bank = *banks_[number / kBankUnits];
  const std::uint32_t place = number % kBankUnits;
  const Holders bit = Holders{1} << place;
  const auto tier = static_cast<std::size_t>(cache.tier);
  if (before) {
    for (std::size_t level = tier; level < kTiers; ++level) {
      if ((bank.find(*before, level) & bit) == 0) bank.open[level] |= bit;
    }
  }
  HolderTable& holders = table(bank, tier);
  std::size_t room_and_table = room() + holders.bytes();
  for (const BlockHash block : blocks) {
    const auto add = [&] {
      const std::size_t taken = holders.bytes();
      return holders.add(block, place, room_and_table > taken ? room_and_table - taken : 0);
    };
    HolderTable::Added added = add();
    if (added == HolderTable::Added::kNoRoom && dirty_) {
      // Rather one longer pause than a replica without its blocks.
      sweep(~std::size_t{0});
      room_and_table = room() + holders.bytes();
      added = add();
    }
    if (added == HolderTable::Added::kNoRoom) {
      overflow(cache.replica);
      return false;
    }
    if (added == HolderTable::Added::kHeld) {
      if (again != nullptr) again->push_back(block);
      continue;
    }
    ++bank.units[place].blocks[tier];
    ++blocks_;
  }
  return true;
}

void EngineCaches::remove(const EngineCache& cache, std::span<const BlockHash> blocks, bool tails) {
  sweep(kSweepBlocks);
  if (cache.replica >= replicas_.size()) return;
  const std::uint32_t number = find_unit(replicas_[cache.replica], cache.rank);
  if (number == kNoUnit) return;
  Bank& bank = *banks_[number / kBankUnits];
  const std::uint32_t place = number % kBankUnits;
  const Holders bit = Holders{1} << place;
  const auto tier = static_cast<std::size_t>(cache.tier);
  if (bank.tiers[tier] == nullptr) return;
  Unit& unit = bank.units[place];
  const bool expected = now_ != nullptr && (now_->sent.blocks(cache.replica) > 0 ||
                                            before_->sent.blocks(cache.replica) > 0);
  for (const BlockHash block : blocks) {
    if (!bank.tiers[tier]->remove(block, place)) continue;
    --unit.blocks[tier];
    --blocks_;
    if (expected) note_drop(cache.replica, block);
    if (tails) continue;
    for (std::size_t level = tier; level < kTiers; ++level) {
      if ((bank.find(block, level) & bit) == 0) bank.open[level] |= bit;
    }
  }
  // Nothing is closed.
  std::uint64_t held = 0;
  for (std::size_t level = 0; level < kTiers; ++level) {
    held += unit.blocks[level];
    if (held == 0) bank.open[level] &= ~bit;
  }
}

void EngineCaches::clear(ReplicaIndex replica, std::uint16_t rank) {
  sweep(kSweepBlocks);
  if (replica >= replicas_.size()) return;
  forget_sent(replica);
  ReplicaState& state = replicas_[replica];
  const std::uint32_t number = find_unit(state, rank);
  if (number == kNoUnit) return;
  drop_unit(number);
  std::erase(state.units, number);
}

void EngineCaches::forget_blocks(ReplicaIndex replica) {
  if (replica >= replicas_.size()) return;
  drop_units(replicas_[replica]);
  replicas_[replica].shut_out = false;
  forget_sent(replica);
}

void EngineCaches::forget(ReplicaIndex replica) {
  forget_blocks(replica);
  set_trust(replica, Trust::kNone);
}

void EngineCaches::set_trust(ReplicaIndex replica, Trust trust) {
  if (trust == Trust::kNone && replica >= replicas_.size()) return;
  ReplicaState* const state = state_of(replica);
  if (state == nullptr || state->trust == trust) return;
  if (state->shut_out && trust == Trust::kTrusted) return;
  if (state->trust == Trust::kTrusted) --trusted_;
  state->trust = trust;
  if (trust == Trust::kTrusted) ++trusted_;
  for (const std::uint32_t number : state->units) {
    Bank& bank = *banks_[number / kBankUnits];
    const Holders bit = Holders{1} << number % kBankUnits;
    bank.trusted = trust == Trust::kTrusted ? bank.trusted | bit : bank.trusted & ~bit;
  }
  if (trust == Trust::kTrusted && now_ == nullptr &&
      sent_bytes(options_.max_bytes) >= kFewestSentBytes) {
    const auto make = [&] {
      return std::make_unique<Lately>(
          Lately{PrefixIndex({.max_bytes = sent_bytes(options_.max_bytes), .seed = options_.seed}),
                 RecentDrops(drop_bytes(options_.max_bytes), options_.seed)});
    };
    now_ = make();
    before_ = make();
  }
}

Trust EngineCaches::trust(ReplicaIndex replica) const {
  return replica < replicas_.size() ? replicas_[replica].trust : Trust::kNone;
}

// --- Ranks and their places

EngineCaches::ReplicaState* EngineCaches::state_of(ReplicaIndex replica) {
  if (replica >= kMaxReplicas) return nullptr;
  if (replica >= replicas_.size()) {
    const std::size_t count =
        std::min(std::max<std::size_t>(replica + 1, 2 * replicas_.size()), kMaxReplicas);
    if (count * (sizeof(ReplicaState) + sizeof(place_[0])) > room() + kSlack / 2) return nullptr;
    replicas_.resize(count);
    place_.resize(count);
  }
  return &replicas_[replica];
}

std::uint32_t EngineCaches::find_unit(const ReplicaState& state, std::uint16_t rank) const {
  for (const std::uint32_t number : state.units) {
    if (banks_[number / kBankUnits]->units[number % kBankUnits].rank == rank) return number;
  }
  return kNoUnit;
}

std::uint32_t EngineCaches::make_unit(ReplicaIndex replica, std::uint16_t rank) {
  // With empty tables.
  constexpr std::size_t kBankBytes = sizeof(Bank) + kTiers * (std::size_t{4} << 10);
  std::size_t index = 0;
  const auto taken = [&](const Bank& bank) { return bank.live | bank.leaving | bank.sweeping; };
  while (index < banks_.size() && ~taken(*banks_[index]) == 0) ++index;
  if (index == banks_.size()) {
    if (room() < kBankBytes) sweep(~std::size_t{0});
    if (room() < kBankBytes) return kNoUnit;
    index = banks_.size();
    banks_.push_back(std::make_unique<Bank>());
  }
  Bank& bank = *banks_[index];
  const auto place = static_cast<std::uint32_t>(std::countr_one(taken(bank)));
  const Holders bit = Holders{1} << place;
  bank.live |= bit;
  if (trusted(replica)) bank.trusted |= bit;
  bank.units[place] = {replica, rank, {}};
  const auto number = static_cast<std::uint32_t>(index) * kBankUnits + place;
  std::vector<std::uint32_t>& units = replicas_[replica].units;
  // With what the allocator adds to a small piece.
  const auto list_bytes = [&] { return units.capacity() * sizeof(units[0]) + 16; };
  unit_list_bytes_ -= units.capacity() == 0 ? 0 : list_bytes();
  units.push_back(number);
  unit_list_bytes_ += list_bytes();
  return number;
}

// Takes a rank's place away; not out of its replica's list.
void EngineCaches::drop_unit(std::uint32_t number) {
  Bank& bank = *banks_[number / kBankUnits];
  Unit& unit = bank.units[number % kBankUnits];
  const Holders bit = Holders{1} << number % kBankUnits;
  bank.live &= ~bit;
  bank.trusted &= ~bit;
  for (Holders& open : bank.open) open &= ~bit;
  std::uint64_t held = 0;
  for (const std::uint64_t count : unit.blocks) held += count;
  if (held > 0) {
    bank.leaving |= bit;
    dirty_ = true;
  }
  blocks_ -= held;
  unit = {};
}

void EngineCaches::drop_units(ReplicaState& state) {
  for (const std::uint32_t number : state.units) drop_unit(number);
  state.units.clear();
}

HolderTable& EngineCaches::table(Bank& bank, std::size_t tier) {
  if (bank.tiers[tier] == nullptr) {
    bank.tiers[tier] = std::make_unique<HolderTable>(options_.seed + tier);
    bank.tier_count = std::max(bank.tier_count, tier + 1);
  }
  return *bank.tiers[tier];
}

// --- Room

std::size_t EngineCaches::bytes() const {
  std::size_t sum = sizeof(EngineCaches) + banks_.capacity() * sizeof(banks_[0]) +
                    replicas_.capacity() * sizeof(ReplicaState) +
                    place_.capacity() * sizeof(place_[0]) + near_.capacity() * sizeof(near_[0]) +
                    unit_list_bytes_;
  for (const auto& bank : banks_) {
    sum += sizeof(Bank);
    for (const auto& tier : bank->tiers) sum += tier == nullptr ? 0 : tier->bytes();
  }
  for (const Lately* const lately : {now_.get(), before_.get()}) {
    if (lately != nullptr) sum += lately->sent.bytes() + lately->drops.bytes();
  }
  return sum;
}

// What tables may grow by.
std::size_t EngineCaches::room() const {
  std::size_t taken = bytes() + kSlack;
  if (sent_bytes(options_.max_bytes) >= kFewestSentBytes) {
    taken += 2 * (sent_bytes(options_.max_bytes) + drop_bytes(options_.max_bytes));
  }
  for (const Lately* const lately : {now_.get(), before_.get()}) {
    if (lately != nullptr) taken -= lately->sent.bytes() + lately->drops.bytes();
  }
  return taken < options_.max_bytes ? options_.max_bytes - taken : 0;
}

void EngineCaches::overflow(ReplicaIndex replica) {
  ++overflows_;
  drop_units(replicas_[replica]);
  set_trust(replica, Trust::kNone);
  replicas_[replica].shut_out = true;
}

void EngineCaches::sweep(std::size_t blocks) {
  if (!dirty_) return;
  dirty_ = false;
  for (const auto& bank : banks_) {
    if (!sweep_bank(*bank, blocks)) {
      dirty_ = true;
      if (blocks < ~std::size_t{0}) return;
    }
  }
  while (!banks_.empty() && banks_.back()->live == 0) banks_.pop_back();
}

// Returns whether nothing is left to sweep.
bool EngineCaches::sweep_bank(Bank& bank, std::size_t blocks) {
  do {
    if (bank.sweeping == 0) {
      if (bank.leaving == 0) return true;
      bank.sweeping = std::exchange(bank.leaving, 0);
      for (const auto& tier : bank.tiers) {
        if (tier != nullptr) tier->begin_sweep(bank.sweeping);
      }
    }
    for (const auto& tier : bank.tiers) {
      if (tier != nullptr && !tier->sweep(blocks)) return false;
    }
    bank.sweeping = 0;
  } while (blocks == ~std::size_t{0});
  return bank.leaving == 0;
}

// --- Matching

void EngineCaches::match(std::span<const BlockHash> chain, TimePoint now, std::vector<Match>& out) {
  out.clear();
  near_.clear();
  if (trusted_ == 0 || chain.empty()) return;
  for (const auto& bank : banks_) {
    if (bank->trusted == 0) continue;
    const std::size_t last = bank->tier_count - 1;
    const Holders units = bank->find(chain[0], last) & bank->trusted;
    if (units == 0) continue;
    for (std::size_t level = 0; level <= last; ++level) {
      bisect(*bank, chain, level, units & ~bank->open[level]);
      walk(*bank, chain, level, units & bank->open[level]);
    }
    for_each_bit(units, [&](std::uint32_t place) {
      const Levels& lengths = lengths_[place];
      double worth = 0;
      std::uint32_t length = 0;
      for (std::size_t level = 0; level <= last; ++level) {
        worth += options_.worth[level] * (lengths[level] - length);
        length = lengths[level];
      }
      // A worth of 0.7 ten times is 7 whatever is lost in the last digits.
      const Match& match =
          credit(bank->units[place].replica, static_cast<std::uint32_t>(worth + 1e-6), length, out);
      near_.resize(out.size());
      std::uint32_t& near = near_[static_cast<std::size_t>(&match - out.data())];
      near = std::max(near, lengths[0]);
    });
  }
  if (now_ != nullptr) match_sent(chain, now, out);
  for (const Match& match : out) place_[match.replica] = 0;
}

EngineCaches::Match& EngineCaches::credit(ReplicaIndex replica, std::uint32_t blocks,
                                          std::uint32_t length, std::vector<Match>& out) {
  if (place_[replica] == 0) {
    out.push_back({replica, blocks, length});
    place_[replica] = static_cast<std::uint32_t>(out.size());
    return out.back();
  }
  Match& match = out[place_[replica] - 1];
  match.blocks = std::max(match.blocks, blocks);
  match.length = std::max(match.length, length);
  return match;
}

// Of units that are closed at the level: all of them at once, by halves of the chain. The ranges of
// a round do not depend on each other, so that their waits for memory overlap.
void EngineCaches::bisect(const Bank& bank, std::span<const BlockHash> chain, std::size_t level,
                          Holders units) {
  if (units == 0) return;
  // Ranges are of different units, so there are never more of them than units.
  std::array<Range, kBankUnits> ranges;
  std::array<Range, kBankUnits> halves;
  std::size_t count = 0;
  std::size_t half_count = 0;
  const auto middle = [](const Range& range) { return (range.least + range.most + 1) / 2; };
  const auto put = [&](const Range& range) {
    if (range.units == 0) return;
    if (range.least == range.most) {
      for_each_bit(range.units, [&](std::uint32_t place) { lengths_[place][level] = range.least; });
      return;
    }
    bank.expect(chain[middle(range) - 1], level);
    halves[half_count++] = range;
  };
  put({0, static_cast<std::uint32_t>(chain.size()), units});
  while (half_count > 0) {
    std::copy_n(halves.begin(), half_count, ranges.begin());
    count = std::exchange(half_count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      const Range& range = ranges[i];
      const std::uint32_t at = middle(range);
      const Holders held = bank.find(chain[at - 1], level) & range.units;
      put({at, range.most, held});
      put({range.least, at - 1, range.units & ~held});
    }
  }
}

// Of units that may hold a block without the one before it: block by block.
void EngineCaches::walk(const Bank& bank, std::span<const BlockHash> chain, std::size_t level,
                        Holders units) {
  for (std::size_t i = 0; units != 0; ++i) {
    const Holders held = i < chain.size() ? bank.find(chain[i], level) : 0;
    if (i + kAhead < chain.size()) bank.expect(chain[i + kAhead], level);
    for_each_bit(units & ~held, [&](std::uint32_t place) {
      lengths_[place][level] = static_cast<std::uint32_t>(i);
    });
    units &= held;
  }
}

// --- What was sent lately

// A request that was sent is believed to bring what the engine does not hold yet, up to the first
// block that the engine held and dropped since.
void EngineCaches::match_sent(std::span<const BlockHash> chain, TimePoint now,
                              std::vector<Match>& out) {
  turn(now);
  for (const Lately* const lately : {now_.get(), before_.get()}) {
    lately->sent.match(chain, 0, sent_matches_);
    for (const PrefixMatches::Holder& holder : sent_matches_.holders) {
      if (!trusted(holder.replica)) continue;
      const std::uint32_t place = place_[holder.replica];
      std::uint32_t length = place > 0 && place <= near_.size() ? near_[place - 1] : 0;
      while (length < holder.blocks && !dropped(holder.replica, chain[length])) ++length;
      if (length > 0) credit(holder.replica, length, length, out);
    }
  }
}

void EngineCaches::sent(std::span<const BlockHash> chain, ReplicaIndex replica, TimePoint now) {
  if (now_ == nullptr || chain.empty() || !trusted(replica)) return;
  turn(now);
  // An engine that keeps nothing would be believed for ever if each request renewed what is
  // expected of the ones before: where it has told of no block since, that does not live longer for
  // it.
  Lately* in = now_.get();
  if (turns_ - replicas_[replica].stored_turn >= 2 && before_->sent.blocks(replica) > 0) {
    const std::uint32_t before = length_sent(*before_, chain, replica);
    if (before > length_sent(*now_, chain, replica) && !holds(replica, chain[before - 1])) {
      in = before_.get();
    }
  }
  in->sent.insert(chain, 0, replica);
  // What the engine dropped before comes back with this request.
  for (Lately* const lately : {now_.get(), before_.get()}) {
    if (lately->drops.size() == 0) continue;
    for (const BlockHash block : chain) lately->drops.erase(replica, block);
  }
}

// How many leading blocks were sent to the replica in that generation.
std::uint32_t EngineCaches::length_sent(const Lately& lately, std::span<const BlockHash> chain,
                                        ReplicaIndex replica) {
  lately.sent.match(chain, 0, sent_matches_);
  for (const PrefixMatches::Holder& holder : sent_matches_.holders) {
    if (holder.replica == replica) return holder.blocks;
  }
  return 0;
}

bool EngineCaches::holds(ReplicaIndex replica, BlockHash block) const {
  for (const std::uint32_t number : replicas_[replica].units) {
    const Bank& bank = *banks_[number / kBankUnits];
    const Holders bit = Holders{1} << number % kBankUnits;
    if ((bank.find(block, bank.tier_count - 1) & bit) != 0) return true;
  }
  return false;
}

void EngineCaches::forget_sent(ReplicaIndex replica) {
  if (now_ == nullptr) return;
  now_->sent.forget(replica);
  before_->sent.forget(replica);
}

// Where drops are too many to be remembered, nothing is expected of the replica any more.
void EngineCaches::note_drop(ReplicaIndex replica, BlockHash block) {
  if (!now_->drops.add(replica, block)) forget_sent(replica);
}

bool EngineCaches::dropped(ReplicaIndex replica, BlockHash block) const {
  return now_->drops.contains(replica, block) || before_->drops.contains(replica, block);
}

void EngineCaches::turn(TimePoint now) {
  const auto empty = [&](Lately& lately) {
    lately.drops.clear();
    if (lately.sent.blocks() == 0) return;
    for (ReplicaIndex replica = 0; replica < replicas_.size(); ++replica) {
      lately.sent.forget(replica);
    }
  };
  const Duration since = now - turned_;
  if (since < options_.sent_life) return;
  std::swap(now_, before_);
  empty(*now_);
  if (since >= 2 * options_.sent_life) empty(*before_);
  turned_ = now;
  ++turns_;
}

std::uint64_t EngineCaches::blocks(ReplicaIndex replica) const {
  if (replica >= replicas_.size()) return 0;
  std::uint64_t sum = 0;
  for (const std::uint32_t number : replicas_[replica].units) {
    for (const std::uint64_t count :
         banks_[number / kBankUnits]->units[number % kBankUnits].blocks) {
      sum += count;
    }
  }
  return sum;
}

bool EngineCaches::consistent() const {
  std::uint64_t sum = 0;
  std::uint32_t trusted_replicas = 0;
  for (ReplicaIndex replica = 0; replica < replicas_.size(); ++replica) {
    const ReplicaState& state = replicas_[replica];
    if (state.trust == Trust::kTrusted) ++trusted_replicas;
    if (state.shut_out && !state.units.empty()) return false;
    for (const std::uint32_t number : state.units) {
      const Bank& bank = *banks_[number / kBankUnits];
      const Holders bit = Holders{1} << number % kBankUnits;
      if ((bank.live & bit) == 0 || ((bank.leaving | bank.sweeping) & bit) != 0) return false;
      if (((bank.trusted & bit) != 0) != (state.trust == Trust::kTrusted)) return false;
      if (bank.units[number % kBankUnits].replica != replica) return false;
    }
  }
  for (const auto& bank : banks_) {
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      const HolderTable* const holders = bank->tiers[tier].get();
      if (holders != nullptr && !holders->consistent()) return false;
      for (std::uint32_t place = 0; place < kBankUnits; ++place) {
        const Holders bit = Holders{1} << place;
        const std::uint64_t held = holders == nullptr ? 0 : holders->held_by(place);
        const bool live = (bank->live & bit) != 0;
        if (live && held != bank->units[place].blocks[tier]) return false;
        if (!live && held > 0 && ((bank->leaving | bank->sweeping) & bit) == 0) return false;
        if (live) sum += held;
      }
    }
  }
  return sum == blocks_ && trusted_replicas == trusted_;
}

}  // namespace pointsman
