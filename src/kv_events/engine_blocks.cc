#include "kv_events/engine_blocks.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"

namespace pointsman {
namespace {

// Kinds of layers whose blocks are all needed for a hit, so that what is held is a prefix.
bool is_whole_prefix(std::string_view spec_kind) {
  return spec_kind.empty() || spec_kind.find("full") != std::string_view::npos ||
         spec_kind.find("mla") != std::string_view::npos;
}

bool in_tier(const BlockTable::Facts& facts, Tier tier) {
  if (tier == Tier::kGpu) return facts.copies > 0;
  return facts.slower[tier == Tier::kCpu ? 0 : 1];
}

bool in_tier_or_faster(const BlockTable::Facts& facts, Tier tier) {
  return facts.copies > 0 || (tier != Tier::kGpu && facts.slower[0]) ||
         (tier == Tier::kDisk && facts.slower[1]);
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The cache salt that a prompt's first block names.
std::string_view salt_of(const BlockExtras& extras, std::string_view lora) {
  if (!extras.salt.empty()) return extras.salt;
  for (std::size_t i = 0; i < extras.bare_count; ++i) {
    if (extras.bare[i] != lora) return extras.bare[i];
  }
  return {};
}

// Whether the extras are no more than the adapter that the event names and, of a prompt's first
// block, one salt. A lone name without a tag in the first block is taken for a salt: were it a
// picture, its prompts would have a world of their own that no request asks for.
bool is_plain(const BlockExtras& extras, std::string_view lora, bool first) {
  if (extras.other || (!extras.lora.empty() && extras.lora != lora)) return false;
  std::size_t salts = extras.salt.empty() ? 0 : 1;
  for (std::size_t i = 0; i < extras.bare_count; ++i) {
    const std::string_view name = extras.bare[i];
    if (name != lora && (extras.salt.empty() || name != extras.salt)) ++salts;
  }
  return salts == 0 || (first && salts == 1);
}

}  // namespace

Tier tier_of(std::string_view medium) {
  std::string word;
  for (const char c : medium) word += ascii_lower(c);
  if (word.empty() || has(word, "gpu") || has(word, "hbm") || has(word, "device")) {
    return Tier::kGpu;
  }
  if (has(word, "cpu") || has(word, "host") || has(word, "dram")) return Tier::kCpu;
  return Tier::kDisk;
}

EngineBlocks::EngineBlocks(const TokenChain& chain, TableBudget& budget, const Options& options)
    : chain_(chain), budget_(budget), options_(options), shared_(budget) {}

void EngineBlocks::apply(const KvEvent& event, CacheChanges& changes) {
  switch (event.type) {
    case KvEvent::Type::kCleared:
      clear(changes);
      ++counts_.cleared;
      return;
    case KvEvent::Type::kStored:
      return store(event, changes);
    case KvEvent::Type::kRemoved:
      return remove(event, changes);
  }
}

void EngineBlocks::clear(CacheChanges& changes) {
  if (table_) table_->clear();
  shared_.clear();
  unheard_hole_ = false;
  gpu_blocks_ = 0;
  other_blocks_ = 0;
  changes.clear();
}

void EngineBlocks::tell_all(CacheChanges& changes) {
  if (!table_) return;
  shared_.clear();
  done_.assign(table_->places(), false);
  table_->for_each([&](BlockTable::Place place) {
    // What is before a block is told before it.
    way_up_.clear();
    for (std::optional<BlockTable::Place> at = place; at && !done_[*at]; at = table_->parent(*at)) {
      done_[*at] = true;
      way_up_.push_back(*at);
    }
    for (; !way_up_.empty(); way_up_.pop_back()) {
      const BlockTable::Place next = way_up_.back();
      const BlockTable::Facts facts = table_->facts(next);
      const std::span<const BlockHash> keys = emitted(next);
      if (keys.empty()) continue;
      for (const Tier tier : {Tier::kGpu, Tier::kCpu, Tier::kDisk}) {
        if (in_tier(facts, tier)) tell_stored(tier, before(next, tier), keys, changes);
      }
    }
  });
}

bool EngineBlocks::counts_for_prefix(const KvEvent& event) {
  if (!group_known_ && event.type == KvEvent::Type::kStored && is_whole_prefix(event.spec_kind)) {
    group_known_ = true;
    group_ = event.group;
  }
  // Tiers below the GPU may leave the group out.
  if (!event.group) return is_whole_prefix(event.spec_kind);
  return group_known_ && (!group_ || *event.group == *group_) && is_whole_prefix(event.spec_kind);
}

void EngineBlocks::store(const KvEvent& event, CacheChanges& changes) {
  const Tier tier = tier_of(event.medium);
  if (!counts_for_prefix(event)) {
    counts_.other_groups += event.blocks.size();
    if (tier == Tier::kGpu) other_blocks_ += event.blocks.size();
    return;
  }
  told_.clear();
  if (event.tokens.empty()) {
    store_known(event, tier, changes);
  } else if (std::optional<Link> link = start_of(event)) {
    if (!table_) make_table(event.block_tokens);
    const std::size_t with_key = blocks_with_key(event);
    for (std::size_t i = 0; i < event.blocks.size(); ++i) {
      if (i == with_key) link->left_out = true;
      const std::size_t size = event.block_tokens;
      *link = place(event.blocks[i], *link, event.tokens.subspan(i * size, size), tier, changes);
    }
  } else {
    counts_.unplaced += event.blocks.size();
  }
  tell_stored(tier, changes);
}

// Made once, when the engine's block size is known: a block covers so many multiples of the
// router's block size, and its end may be one key more.
void EngineBlocks::make_table(std::uint32_t engine_block_tokens) {
  engine_block_tokens_ = engine_block_tokens;
  const std::uint32_t ours = options_.block_tokens;
  keys_each_ = engine_block_tokens / ours + 2;
  if (engine_block_tokens % ours == 0) keys_each_ = engine_block_tokens / ours;
  if (ours % engine_block_tokens == 0) keys_each_ = 1;
  table_ = std::make_unique<BlockTable>(keys_each_, options_.seed, budget_);
}

// Blocks without token ids: copies, in another tier, of blocks that are known.
void EngineBlocks::store_known(const KvEvent& event, Tier tier, CacheChanges& changes) {
  for (const EngineHash hash : event.blocks) {
    const std::optional<BlockTable::Place> place = table_ ? table_->find(hash) : std::nullopt;
    if (!place) {
      ++counts_.unplaced;
    } else if (add_copy(*place, tier)) {
      tell_stored(tier, changes);
      tell(before(*place, tier), emitted(*place));
    }
  }
}

std::optional<EngineBlocks::Link> EngineBlocks::start_of(const KvEvent& event) {
  if (event.parent) {
    const std::optional<BlockTable::Place> parent =
        table_ ? table_->find(*event.parent) : std::nullopt;
    if (!parent) return std::nullopt;
    const BlockTable::Facts facts = table_->facts(*parent);
    return Link{table_->keys(*parent).back(), facts.phase, facts.left_out, event.parent, facts};
  }
  Link link;
  link.left_out = event.has_lora && event.lora.empty();
  const std::string_view salt =
      event.extras.empty() ? std::string_view() : salt_of(event.extras.front(), event.lora);
  link.key = chain_.start(event.lora.empty() ? std::string_view(world_) : event.lora, salt);
  return link;
}

// How many blocks of the event, from the first on, are of nothing but tokens.
std::size_t EngineBlocks::blocks_with_key(const KvEvent& event) const {
  for (std::size_t i = 0; i < event.extras.size(); ++i) {
    if (!is_plain(event.extras[i], event.lora, i == 0 && !event.parent)) return i;
  }
  return event.blocks.size();
}

// Puts one block into the table, behind `from`; what is new to its tier goes to told_.
EngineBlocks::Link EngineBlocks::place(EngineHash hash, const Link& from,
                                       std::span<const std::uint32_t> tokens, Tier tier,
                                       CacheChanges& changes) {
  Link end{from.key, 0, from.left_out, hash, std::nullopt};
  end.phase = static_cast<std::uint16_t>((from.phase + tokens.size()) % options_.block_tokens);
  keys_.clear();
  if (!from.left_out) {
    end.key = chain_.extend_blocks(from.key, from.phase, tokens, options_.block_tokens, keys_);
    if (end.phase != 0) keys_.push_back(end.key);
  }
  // Larger blocks than those that the table was made for have no room in it.
  if (keys_.size() > keys_each_) {
    ++counts_.unplaced;
    return end;
  }
  std::optional<BlockTable::Place> found = table_->find(hash);
  if (found) {
    const BlockTable::Facts facts = table_->facts(*found);
    const bool same =
        facts.left_out == end.left_out && (end.left_out || table_->keys(*found).back() == end.key);
    if (!same) {
      ++counts_.conflicts;
      // What this event has told of the block comes before what is taken back.
      tell_stored(tier, changes);
      drop_everywhere(*found, changes);
      found.reset();
    }
  }
  if (!found) {
    found = table_->insert(hash, from.block);
    if (!found) {
      ++counts_.refused;
      return end;
    }
    // The end's key last; what is not used in front repeats it.
    const std::span<BlockHash> keys = table_->keys(*found);
    std::ranges::fill(keys, end.key);
    std::ranges::copy(keys_, keys.end() - static_cast<std::ptrdiff_t>(keys_.size()));
    BlockTable::Facts facts;
    facts.phase = end.phase;
    facts.left_out = end.left_out;
    table_->set_facts(*found, facts);
    if (const std::optional<BlockTable::Place> parent = table_->parent(*found)) {
      BlockTable::Facts parents = table_->facts(*parent);
      if (parents.children < BlockTable::kMostChildren) ++parents.children;
      table_->set_facts(*parent, parents);
    }
  }
  ++(end.left_out ? counts_.left_out : counts_.stored);
  const std::span<const BlockHash> keys = emitted(*found);
  if (!add_copy(*found, tier)) {
    // Held already, so that what comes next does not follow what is to be told.
    if (!keys.empty()) tell_stored(tier, changes);
  } else if (!keys.empty()) {
    tell(before(from, tier), keys);
  }
  end.facts = table_->facts(*found);
  return end;
}

// What is before a block that is put behind `from`, for CacheChanges::store().
std::optional<BlockHash> EngineBlocks::before(const Link& from, Tier tier) const {
  if (!from.block) return std::nullopt;
  // In the middle of one of our blocks, what is before is no key of the index: that the parent is
  // held says as much.
  if (from.phase != 0 && from.facts && in_tier_or_faster(*from.facts, tier)) return std::nullopt;
  return from.key;
}

std::optional<BlockHash> EngineBlocks::before(BlockTable::Place place, Tier tier) {
  if (table_->begins_prompt(place)) return std::nullopt;
  const std::optional<BlockTable::Place> parent = table_->parent(place);
  // The block before it is gone, and its key with it: another one that nobody holds says so.
  if (!parent) return ~table_->keys(place).back();
  const BlockTable::Facts facts = table_->facts(*parent);
  return before(Link{table_->keys(*parent).back(), facts.phase, false, EngineHash{}, facts}, tier);
}

// Keys to be told: those that follow each other go together.
void EngineBlocks::tell(const std::optional<BlockHash>& before, std::span<const BlockHash> keys) {
  if (told_.empty()) told_before_ = before;
  told_.insert(told_.end(), keys.begin(), keys.end());
}

void EngineBlocks::tell_stored(Tier tier, CacheChanges& changes) {
  if (!told_.empty()) tell_stored(tier, told_before_, told_, changes);
  told_.clear();
}

void EngineBlocks::tell_stored(Tier tier, const std::optional<BlockHash>& before,
                               std::span<const BlockHash> keys, CacheChanges& changes) {
  again_.clear();
  changes.store(tier, before, keys, again_);
  shared_.add(tier, again_);
}

// Of a block that is gone from the tier, the keys that no other one stands for go to told_.
void EngineBlocks::take_back(Tier tier, BlockTable::Place place) {
  const std::span<const BlockHash> keys = emitted(place);
  const std::size_t told = told_.size();
  for (const BlockHash key : keys) {
    if (!shared_.take(tier, key)) told_.push_back(key);
  }
  const BlockTable::Facts facts = table_->facts(place);
  const bool all_told = !keys.empty() && told_.size() - told == keys.size();
  if (facts.children > 0 && !facts.left_out && !all_told) unheard_hole_ = true;
}

// The keys that the index is told of: those at multiples of the router's block size.
std::span<const BlockHash> EngineBlocks::emitted(BlockTable::Place place) {
  const BlockTable::Facts facts = table_->facts(place);
  if (facts.left_out) return {};
  std::span<const BlockHash> keys = table_->keys(place);
  // Unused places in front repeat the end's key, which stands last.
  const BlockHash end = keys.back();
  while (keys.size() > 1 && keys.front() == end) keys = keys.subspan(1);
  return facts.phase == 0 ? keys : keys.first(keys.size() - 1);
}

// Whether the tier did not have it yet.
bool EngineBlocks::add_copy(BlockTable::Place place, Tier tier) {
  BlockTable::Facts facts = table_->facts(place);
  const bool fresh = !in_tier(facts, tier);
  if (tier != Tier::kGpu) {
    facts.slower[tier == Tier::kCpu ? 0 : 1] = true;
  } else if (facts.copies < BlockTable::kMostCopies) {
    ++facts.copies;
    ++gpu_blocks_;
  }
  table_->set_facts(place, facts);
  return fresh;
}

void EngineBlocks::drop_everywhere(BlockTable::Place place, CacheChanges& changes) {
  const BlockTable::Facts facts = table_->facts(place);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu, Tier::kDisk}) {
    if (!in_tier(facts, tier)) continue;
    take_back(tier, place);
    if (!told_.empty()) changes.remove(tier, told_, facts.children == 0 && !unheard_hole_);
    told_.clear();
  }
  gpu_blocks_ -= facts.copies;
  erase(place);
}

void EngineBlocks::erase(BlockTable::Place place) {
  if (const std::optional<BlockTable::Place> parent = table_->parent(place)) {
    BlockTable::Facts facts = table_->facts(*parent);
    if (facts.children > 0 && facts.children < BlockTable::kMostChildren) --facts.children;
    table_->set_facts(*parent, facts);
  }
  table_->erase(place);
}

// Keys that are gone with it go to told_; `tails` becomes false where something is still behind it.
void EngineBlocks::remove_copy(BlockTable::Place place, Tier tier, bool& tails) {
  BlockTable::Facts facts = table_->facts(place);
  if (!in_tier(facts, tier)) return;
  if (tier == Tier::kGpu) {
    --facts.copies;
    --gpu_blocks_;
  } else {
    facts.slower[tier == Tier::kCpu ? 0 : 1] = false;
  }
  if (!in_tier(facts, tier)) {
    take_back(tier, place);
    tails = tails && facts.children == 0;
  }
  facts.held() ? table_->set_facts(place, facts) : erase(place);
}

void EngineBlocks::remove(const KvEvent& event, CacheChanges& changes) {
  const Tier tier = tier_of(event.medium);
  if (!counts_for_prefix(event)) {
    if (tier == Tier::kGpu) {
      other_blocks_ -= std::min<std::uint64_t>(other_blocks_, event.blocks.size());
    }
    return;
  }
  counts_.removed += event.blocks.size();
  if (!table_) return;
  told_.clear();
  behind_.clear();
  bool tails = !unheard_hole_;
  // Tails first, whichever way round they are listed.
  for (const EngineHash hash : event.blocks) {
    const std::optional<BlockTable::Place> place = table_->find(hash);
    if (!place) continue;
    if (event.blocks.size() > 1 && table_->facts(*place).children > 0) {
      behind_.push_back(hash);
    } else {
      remove_copy(*place, tier, tails);
    }
  }
  for (; !behind_.empty(); behind_.pop_back()) {
    const std::optional<BlockTable::Place> place = table_->find(behind_.back());
    if (place) remove_copy(*place, tier, tails);
  }
  if (!told_.empty()) changes.remove(tier, told_, tails);
  told_.clear();
}

}  // namespace pointsman
