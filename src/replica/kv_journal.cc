#include "replica/kv_journal.h"

#include <algorithm>
#include <cassert>

namespace pointsman {

void KvJournal::enter(std::span<const sim::ChainRun> chain, std::span<const std::uint32_t> tokens,
                      const std::string& salt) {
  assert(chain.size() * sim::kBlockTokens <= tokens.size());
  const auto shared_salt = std::make_shared<const std::string>(salt);
  std::optional<std::uint64_t> parent;
  for (const sim::ChainRun& run : chain) {
    const auto [place, is_new] = blocks_.try_emplace(run.id);
    Block& block = place->second;
    if (is_new) {
      std::ranges::copy(tokens.first(sim::kBlockTokens), block.tokens.begin());
      block.parent = parent;
      block.salt = shared_salt;
    }
    ++block.requests;
    parent = run.id;
    tokens = tokens.subspan(sim::kBlockTokens);
  }
}

void KvJournal::leave(std::span<const std::uint64_t> blocks) {
  for (const std::uint64_t block : blocks) --blocks_.at(block).requests;
  left_.insert(left_.end(), blocks.begin(), blocks.end());
}

void KvJournal::clear() {
  cleared_ = true;
  held_ = 0;
  for (auto& [id, block] : blocks_) block.held = block.held_now = false;
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.requests == 0; });
}

KvChanges KvJournal::take(std::span<const sim::ChainRun> changes) {
  // A block may come twice, and then the later word holds.
  for (const sim::ChainRun& change : changes) {
    const auto found = blocks_.find(change.id);
    if (found != blocks_.end()) found->second.held_now = change.blocks > 0;
  }
  KvChanges told{.cleared = cleared_, .removed = {}, .stored = {}};
  cleared_ = false;
  for (const sim::ChainRun& change : changes) {
    const auto found = blocks_.find(change.id);
    if (found == blocks_.end() || !found->second.held || found->second.held_now) continue;
    found->second.held = false;
    --held_;
    told.removed.push_back(change.id);
  }
  for (const sim::ChainRun& change : changes) store(change.id, told);
  for (const std::uint64_t block : told.removed) forget_if_unused(block);
  for (const std::uint64_t block : left_) forget_if_unused(block);
  left_.clear();
  return told;
}

// Tells the block, after those before it that are as new.
void KvJournal::store(std::uint64_t block, KvChanges& changes) {
  std::vector<std::uint64_t> chain;
  for (std::optional<std::uint64_t> at = block; at;) {
    const auto found = blocks_.find(*at);
    if (found == blocks_.end() || found->second.held || !found->second.held_now) break;
    chain.push_back(*at);
    at = found->second.parent;
  }
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
    Block& stored = blocks_.at(*id);
    stored.held = true;
    ++held_;
    const bool continues = !changes.stored.empty() && stored.parent &&
                           changes.stored.back().blocks.back() == *stored.parent;
    if (!continues) {
      changes.stored.push_back(
          {.blocks = {}, .parent = stored.parent, .tokens = {}, .salt = *stored.salt});
    }
    KvChanges::Stored& run = changes.stored.back();
    run.blocks.push_back(*id);
    run.tokens.insert(run.tokens.end(), stored.tokens.begin(), stored.tokens.end());
  }
}

void KvJournal::forget_if_unused(std::uint64_t block) {
  const auto found = blocks_.find(block);
  if (found != blocks_.end() && found->second.requests == 0 && !found->second.held) {
    blocks_.erase(found);
  }
}

}  // namespace pointsman
