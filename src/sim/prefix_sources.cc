#include "sim/prefix_sources.h"

namespace pointsman::sim {

void ExactIndex::set_content(const Content& content, std::uint32_t prompt_tokens, TimePoint now) {
  now_ = now;
  chain_.clear();
  append_chain(content, prompt_tokens, chain_);
}

void ExactIndex::match(const Features& features, PrefixMatches& out) {
  const std::uint32_t granularity = features.block_tokens;
  for (ReplicaIndex replica = 0; replica < engines_.size(); ++replica) {
    const std::uint32_t held = engines_[replica].cached_blocks(chain_, now_);
    const std::uint32_t blocks = held * kBlockTokens / granularity;
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
