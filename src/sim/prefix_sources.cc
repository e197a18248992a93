#include "sim/prefix_sources.h"

#include <algorithm>

namespace pointsman::sim {

ExactIndex::ExactIndex(std::span<VirtualEngine> engines, Duration delay)
    : engines_(engines), delay_(delay), caches_(is_delayed() ? engines.size() : 0) {
  if (!is_delayed()) return;
  for (VirtualEngine& engine : engines_) engine.note_kv_changes();
}

void ExactIndex::note(ReplicaIndex replica, std::span<const KvChange> changes) {
  for (const KvChange& change : changes) caches_[replica].changes.push(change);
}

void ExactIndex::set_content(const Content& content, std::uint32_t prompt_tokens, TimePoint now) {
  now_ = now;
  chain_.clear();
  append_chain(content, prompt_tokens, chain_);
  for (Cache& cache : caches_) {
    for (; !cache.changes.empty() && cache.changes.front().at + delay_ <= now;
         cache.changes.pop()) {
      const ChainRun& run = cache.changes.front().run;
      if (run.blocks > 0) {
        cache.held[run.id] = run.blocks;
      } else {
        cache.held.erase(run.id);
      }
    }
  }
}

std::uint32_t ExactIndex::held_blocks(ReplicaIndex replica) {
  if (!is_delayed()) return engines_[replica].cached_blocks(chain_, now_);
  std::uint32_t blocks = 0;
  for (const ChainRun& run : chain_) {
    const auto held = caches_[replica].held.find(run.id);
    if (held == caches_[replica].held.end()) break;
    blocks += std::min(held->second, run.blocks);
    if (held->second < run.blocks) break;
  }
  return blocks;
}

void ExactIndex::forget(ReplicaIndex replica) {
  if (!is_delayed()) return;
  caches_[replica] = {};
}

void ExactIndex::match(const Features& features, PrefixMatches& out) {
  const std::uint32_t granularity = features.block_tokens;
  for (ReplicaIndex replica = 0; replica < engines_.size(); ++replica) {
    const std::uint32_t blocks = held_blocks(replica) * kBlockTokens / granularity;
    if (blocks > 0) out.holders.push_back({replica, blocks});
  }
  std::uint32_t shared = 0;
  for (const ChainRun& run : chain_) {
    if (!is_shareable(run.id)) break;
    const auto seen = seen_.find(run.id);
    if (seen == seen_.end()) break;
    if (!seen->second.shared && seen->second.session == features.session_key) break;
    shared += run.blocks;
  }
  out.shared_blocks = shared * kBlockTokens / granularity;
}

void ExactIndex::sent(const Features& features, ReplicaIndex) {
  for (const ChainRun& run : chain_) {
    if (!is_shareable(run.id)) break;
    Seen& seen = seen_.try_emplace(run.id, Seen{features.session_key, false}).first->second;
    if (seen.session != features.session_key) seen.shared = true;
  }
}

}  // namespace pointsman::sim
