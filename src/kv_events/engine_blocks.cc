#include "kv_events/engine_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/ascii.h"

namespace pointsman {
namespace {

constexpr std::uint8_t kMostCopies = std::numeric_limits<std::uint8_t>::max();

// Kinds of layers whose blocks are all needed for a hit, so that what is held is a prefix.
bool is_whole_prefix(std::string_view spec_kind) {
  return spec_kind.empty() || spec_kind.find("full") != std::string_view::npos ||
         spec_kind.find("mla") != std::string_view::npos;
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

CacheTier tier_of(std::string_view medium) {
  std::string word;
  for (const char c : medium) word += ascii_lower(c);
  if (word.empty() || has(word, "gpu") || has(word, "hbm") || has(word, "device")) {
    return CacheTier::kGpu;
  }
  if (has(word, "cpu") || has(word, "host") || has(word, "dram")) return CacheTier::kHost;
  return CacheTier::kDisk;
}

EngineBlocks::EngineBlocks(const TokenChain& chain, TableBudget& budget, const Options& options)
    : chain_(chain), budget_(budget), options_(options) {}

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
  gpu_blocks_ = 0;
  other_blocks_ = 0;
  changes.clear();
}

void EngineBlocks::tell_all(CacheChanges& changes) {
  if (!table_) return;
  table_->for_each([&](BlockTable::Place place) {
    const BlockTable::Facts facts = table_->facts(place);
    const std::span<const BlockHash> keys = emitted(place);
    if (keys.empty()) return;
    if (facts.copies > 0) changes.store(CacheTier::kGpu, keys);
    if (facts.slower[0]) changes.store(CacheTier::kHost, keys);
    if (facts.slower[1]) changes.store(CacheTier::kDisk, keys);
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
  const CacheTier tier = tier_of(event.medium);
  if (!counts_for_prefix(event)) {
    counts_.other_groups += event.blocks.size();
    if (tier == CacheTier::kGpu) other_blocks_ += event.blocks.size();
    return;
  }
  told_.clear();
  if (event.tokens.empty()) {
    store_known(event, tier);
  } else if (std::optional<Link> link = start_of(event)) {
    if (!table_) {
      // A block covers so many multiples of the router's block size, and its end may be one more.
      engine_block_tokens_ = event.block_tokens;
      const std::uint32_t ours = options_.block_tokens;
      keys_each_ = event.block_tokens % ours == 0   ? event.block_tokens / ours
                   : ours % event.block_tokens == 0 ? 1
                                                    : event.block_tokens / ours + 2;
      table_ = std::make_unique<BlockTable>(keys_each_, options_.seed, budget_);
    }
    const std::size_t with_key = blocks_with_key(event);
    for (std::size_t i = 0; i < event.blocks.size(); ++i) {
      if (i == with_key) link->left_out = true;
      const std::size_t size = event.block_tokens;
      *link = place(event.blocks[i], *link, event.tokens.subspan(i * size, size), tier, changes);
    }
  } else {
    counts_.unplaced += event.blocks.size();
  }
  if (!told_.empty()) changes.store(tier, told_);
}

// Blocks without token ids: copies, in another tier, of blocks that are known.
void EngineBlocks::store_known(const KvEvent& event, CacheTier tier) {
  for (const EngineHash hash : event.blocks) {
    const std::optional<BlockTable::Place> place = table_ ? table_->find(hash) : std::nullopt;
    place ? add_copy(*place, tier) : void(++counts_.unplaced);
  }
}

std::optional<EngineBlocks::Link> EngineBlocks::start_of(const KvEvent& event) {
  if (event.parent) {
    const std::optional<BlockTable::Place> parent =
        table_ ? table_->find(*event.parent) : std::nullopt;
    if (!parent) return std::nullopt;
    const BlockTable::Facts facts = table_->facts(*parent);
    return Link{table_->keys(*parent).back(), facts.phase, facts.left_out};
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
                                       std::span<const std::uint32_t> tokens, CacheTier tier,
                                       CacheChanges& changes) {
  Link end{from.key, 0, from.left_out};
  end.phase = static_cast<std::uint16_t>((from.phase + tokens.size()) % options_.block_tokens);
  keys_.clear();
  if (!from.left_out) {
    end.key = chain_.extend_blocks(from.key, from.phase, tokens, options_.block_tokens, keys_);
    if (end.phase != 0) keys_.push_back(end.key);
  }

  std::optional<BlockTable::Place> found = table_->find(hash);
  if (found) {
    const BlockTable::Facts facts = table_->facts(*found);
    if (facts.left_out == end.left_out &&
        (end.left_out || table_->keys(*found).back() == end.key)) {
      counts_.left_out += end.left_out ? 1 : 0;
      counts_.stored += end.left_out ? 0 : 1;
      add_copy(*found, tier);
      return end;
    }
    ++counts_.conflicts;
    // What this event has told of the block comes before what is taken back.
    if (!told_.empty()) changes.store(tier, told_);
    told_.clear();
    drop_everywhere(*found, changes);
    found.reset();
  }
  if (keys_.size() > keys_each_) {
    // Larger blocks than those that the table was made for.
    ++counts_.unplaced;
    return end;
  }
  found = table_->insert(hash);
  if (!found) {
    ++counts_.refused;
    return end;
  }
  // The end's key last; what is not used in front repeats it.
  const std::span<BlockHash> keys = table_->keys(*found);
  std::ranges::fill(keys, end.key);
  std::ranges::copy(keys_, keys.end() - static_cast<std::ptrdiff_t>(keys_.size()));
  table_->set_facts(*found, {.phase = end.phase, .left_out = end.left_out});
  counts_.left_out += end.left_out ? 1 : 0;
  counts_.stored += end.left_out ? 0 : 1;
  add_copy(*found, tier);
  return end;
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

void EngineBlocks::add_copy(BlockTable::Place place, CacheTier tier) {
  BlockTable::Facts facts = table_->facts(place);
  bool fresh = false;
  if (tier == CacheTier::kGpu) {
    fresh = facts.copies == 0;
    if (facts.copies < kMostCopies) {
      ++facts.copies;
      ++gpu_blocks_;
    }
  } else {
    bool& held = facts.slower[tier == CacheTier::kHost ? 0 : 1];
    fresh = !held;
    held = true;
  }
  table_->set_facts(place, facts);
  if (!fresh) return;
  const std::span<const BlockHash> keys = emitted(place);
  told_.insert(told_.end(), keys.begin(), keys.end());
}

void EngineBlocks::drop_everywhere(BlockTable::Place place, CacheChanges& changes) {
  const BlockTable::Facts facts = table_->facts(place);
  const std::span<const BlockHash> keys = emitted(place);
  if (!keys.empty()) {
    if (facts.copies > 0) changes.remove(CacheTier::kGpu, keys);
    if (facts.slower[0]) changes.remove(CacheTier::kHost, keys);
    if (facts.slower[1]) changes.remove(CacheTier::kDisk, keys);
  }
  gpu_blocks_ -= facts.copies;
  table_->erase(place);
}

void EngineBlocks::remove(const KvEvent& event, CacheChanges& changes) {
  const CacheTier tier = tier_of(event.medium);
  if (!counts_for_prefix(event)) {
    if (tier == CacheTier::kGpu) {
      other_blocks_ -= std::min<std::uint64_t>(other_blocks_, event.blocks.size());
    }
    return;
  }
  counts_.removed += event.blocks.size();
  if (!table_) return;
  told_.clear();
  for (const EngineHash hash : event.blocks) {
    const std::optional<BlockTable::Place> place = table_->find(hash);
    if (!place) continue;
    BlockTable::Facts facts = table_->facts(*place);
    bool last = false;
    if (tier == CacheTier::kGpu) {
      if (facts.copies == 0) continue;
      last = --facts.copies == 0;
      --gpu_blocks_;
    } else {
      bool& held = facts.slower[tier == CacheTier::kHost ? 0 : 1];
      last = std::exchange(held, false);
    }
    if (last) {
      const std::span<const BlockHash> keys = emitted(*place);
      told_.insert(told_.end(), keys.begin(), keys.end());
    }
    facts.held() ? table_->set_facts(*place, facts) : table_->erase(*place);
  }
  if (!told_.empty()) changes.remove(tier, told_);
}

}  // namespace pointsman
