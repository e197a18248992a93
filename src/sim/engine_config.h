#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pointsman::sim {

// Tokens per KV block, as vLLM's default on GPUs.
inline constexpr std::uint32_t kBlockTokens = 16;

// One engine: its scheduler's limits, and what a step costs on its hardware.
struct EngineConfig {
  // --- limits of the scheduler
  std::uint32_t blocks = 26'000;                 // KV blocks of kBlockTokens tokens
  std::uint32_t max_num_batched_tokens = 8'192;  // tokens in one step
  std::uint32_t max_num_seqs = 256;              // requests running at once
  bool prefix_caching = true;                    // false: no request finds what others computed

  // --- seconds of a step; see StepCost in step_cost.h
  double step_s = 0.003;            // t0: scheduling, launch, sampling
  double weights_s = 0.0098;        // tw: reading the weights once
  double token_s = 80e-6;           // tc: computing one token
  double context_s = 80e-9;         // tkv: reading the KV of one context token of a decode
  double sequence_s = 10e-6;        // tseq: per request in the step
  double attention_ratio = 3.3e-5;  // ra: attention work of one query-context pair, in tokens

  // Longest prompt plus answer that the KV cache can hold at all.
  [[nodiscard]] std::uint64_t capacity_tokens() const {
    return std::uint64_t{blocks} * kBlockTokens;
  }
};

struct EnginePreset {
  std::string_view name;
  std::string_view what;
  EngineConfig config;
};

// Known engines. The constants of the first four follow from the hardware: computing a token takes
// 2 FLOP per parameter at 45 to 55 % of the peak rate; the weights are read at 70 to 80 % of the
// memory bandwidth; a context token takes 128 KiB (8B) or 320 KiB (70B) of reading; blocks are what
// is left of the memory. They are estimates, not measurements. `ref70` and `set_a` are the engines
// of the reference workloads with the same names.
[[nodiscard]] std::span<const EnginePreset> engine_presets();

// The preset of that name, or nullptr.
[[nodiscard]] const EnginePreset* find_engine_preset(std::string_view name);

}  // namespace pointsman::sim
