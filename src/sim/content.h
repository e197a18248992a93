#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/features.h"
#include "sim/chance.h"
#include "sim/engine_config.h"
#include "sim/kv_model.h"

namespace pointsman::sim {

// What a prompt and its answer say, as far as a cache can tell: runs of tokens, each named by an id
// that stands for its contents and for all before it.
struct ContentRun {
  std::uint64_t id = 0;
  std::uint32_t end = 0;  // tokens from the beginning of the prompt to the end of the run
};
using Content = std::vector<ContentRun>;

// The kinds of runs have ids of their own. Those of conversations belong to one session alone.
[[nodiscard]] constexpr std::uint64_t conversation_run(std::uint64_t conversation) {
  return conversation;
}
[[nodiscard]] constexpr std::uint64_t system_run(std::uint64_t system_prompt) {
  return std::uint64_t{1} << 63 | system_prompt;
}
[[nodiscard]] constexpr std::uint64_t trace_run(std::uint64_t hash_id) {
  return std::uint64_t{1} << 62 | hash_id;
}
[[nodiscard]] constexpr bool is_shareable(std::uint64_t run) {
  return run >> 62 != 0;
}

// Chain hashes of the whole blocks among the first `tokens` of the content, appended to `out`. A
// block that two runs share belongs to the later one.
inline void append_block_hashes(const Content& content, std::uint32_t tokens,
                                std::uint32_t block_tokens, std::vector<BlockHash>& out) {
  std::uint64_t block = 0;
  for (const ContentRun& run : content) {
    const std::uint64_t end = std::min(run.end, tokens) / block_tokens;
    // Neither ids nor blocks come near 2^40, so no two pairs have the same sum.
    for (; block < end; ++block) out.push_back(mixed(run.id + (block << 40)));
  }
}

// The first `tokens` of the content in the engine's blocks.
inline void append_chain(const Content& content, std::uint32_t tokens, std::vector<ChainRun>& out) {
  std::uint32_t block = 0;
  for (const ContentRun& run : content) {
    const std::uint32_t end = std::min(run.end, tokens) / kBlockTokens;
    if (end > block) out.push_back({run.id, end - block});
    block = std::max(block, end);
  }
}

}  // namespace pointsman::sim
