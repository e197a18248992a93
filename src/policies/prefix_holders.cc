#include "policies/prefix_holders.h"

#include <algorithm>

#include "policies/affinity.h"

namespace pointsman {

std::uint32_t PrefixHolders::key_blocks(const Features& features) const {
  const std::uint32_t block = std::max<std::uint32_t>(features.block_tokens, 1);
  const std::uint32_t most = std::max<std::uint32_t>(options_.tokens / block, 1);
  return static_cast<std::uint32_t>(std::min<std::size_t>(features.blocks.size(), most));
}

void PrefixHolders::sample(Context& context, Candidates& candidates) {
  const Features& features = context.features;
  std::array<ReplicaIndex, PrefixTable::kHolders> holders{};
  for (std::uint32_t blocks = key_blocks(features); blocks > 0; --blocks) {
    if (!table_.has_keys_of(blocks)) continue;
    const std::size_t count = table_.find(features.blocks[blocks - 1], holders);
    usable_.clear();
    bool any = false;
    for (const ReplicaIndex replica : std::span(holders).first(count)) {
      if (!is_candidate(candidates.view(), replica)) continue;
      if (context.believed_share(replica) <= 0) continue;
      any = true;
      if (!saturated(context, replica)) usable_.push_back(replica);
    }
    if (!any) continue;
    if (!usable_.empty()) {
      context.reason = Reason::kPrefix;
      candidates.assign(usable_);
      return;
    }
    context.reason = Reason::kValve;
    break;
  }
  draw_.narrow(context, candidates, options_.choices);
}

void PrefixHolders::picked(const Context& context, ReplicaIndex replica) {
  const std::uint32_t blocks = key_blocks(context.features);
  if (!table_.salted()) table_.salt(context.rng());
  if (blocks > 0) table_.remember(context.features.blocks[blocks - 1], blocks, replica);
}

}  // namespace pointsman
