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

// The kinds of runs have ids of their own, by their highest bits. Those of conversations and of
// single requests belong to one session alone.
namespace run_kind {
inline constexpr int kShift = 60;
inline constexpr std::uint64_t kMask = (std::uint64_t{1} << kShift) - 1;
inline constexpr std::uint64_t kSystem = 8;  // this and above: what several sessions may share
inline constexpr std::uint64_t kTrace = 9;
inline constexpr std::uint64_t kFile = 1;
inline constexpr std::uint64_t kSession = 2;
inline constexpr std::uint64_t kAnswer = 3;
}  // namespace run_kind

[[nodiscard]] constexpr std::uint64_t conversation_run(std::uint64_t conversation) {
  return conversation;
}
[[nodiscard]] constexpr std::uint64_t system_run(std::uint64_t system_prompt) {
  return run_kind::kSystem << run_kind::kShift | system_prompt;
}
// Of a trace: a block with that id, all of a request, all of a session, the answer to a request.
[[nodiscard]] constexpr std::uint64_t trace_run(std::uint64_t hash_id) {
  return run_kind::kTrace << run_kind::kShift | hash_id;
}
[[nodiscard]] constexpr std::uint64_t file_run(std::uint64_t request) {
  return run_kind::kFile << run_kind::kShift | request;
}
[[nodiscard]] constexpr std::uint64_t session_run(std::uint64_t session_key) {
  return run_kind::kSession << run_kind::kShift | (session_key & run_kind::kMask);
}
[[nodiscard]] constexpr std::uint64_t answer_run(std::uint64_t request) {
  return run_kind::kAnswer << run_kind::kShift | request;
}
// No other request has the run.
[[nodiscard]] constexpr bool is_unique(std::uint64_t run) {
  const std::uint64_t kind = run >> run_kind::kShift;
  return kind == run_kind::kFile || kind == run_kind::kAnswer;
}
[[nodiscard]] constexpr bool is_shareable(std::uint64_t run) {
  return run >> run_kind::kShift >= run_kind::kSystem;
}

// Chain hashes of the whole blocks among the first `tokens` of the content, appended to `out`. A
// block that two runs share belongs to the later one.
inline void append_block_hashes(const Content& content, std::uint32_t tokens,
                                std::uint32_t block_tokens, std::vector<BlockHash>& out) {
  std::uint64_t block = 0;
  for (const ContentRun& run : content) {
    const std::uint64_t end = std::min(run.end, tokens) / block_tokens;
    const std::uint64_t seed = mixed(run.id);
    for (; block < end; ++block) out.push_back(mixed(seed + block));
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
