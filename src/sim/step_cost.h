#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ratio>

#include "base/time.h"
#include "sim/engine_config.h"

namespace pointsman::sim {

// Time inside an engine, in whole picoseconds: 64 bits hold 106 days, enough for steps and phases;
// whoever counts on takes a new origin before. The durations of consecutive steps of decode are
// exact arithmetic progressions, and many steps can be summed at once without a rounding that
// single steps would not have.
using EngineTime = std::chrono::duration<std::int64_t, std::pico>;

// A sum of such times without end.
__extension__ using WideCount = __int128;
using EngineTotal = std::chrono::duration<WideCount, std::pico>;

[[nodiscard]] constexpr double seconds_of(EngineTotal time) {
  return static_cast<double>(time.count()) / 1e12;
}

// An engine's steps must not take longer than this.
inline constexpr double kLongestStepSeconds = 1e6;
// What no step of such an engine exceeds: its batch full, its cache full and all of it read.
[[nodiscard]] double longest_step_seconds(const EngineConfig& config);

// Work of one step, in the units of the cost model.
struct StepWork {
  std::uint64_t tokens = 0;          // scheduled, prefill and decode
  std::uint64_t decode_context = 0;  // KV tokens that the step's decodes read
  std::uint64_t sequences = 0;       // requests in the step
  std::uint64_t prefill_pairs = 0;   // query-context pairs of the step's prefill chunks
};

// What a step costs on one engine:
//
//   t0 + max(tw, tc·tokens) + tkv·decode_context + tseq·sequences + tc·ra·prefill_pairs
//
// Each constant is rounded to whole picoseconds once.
class StepCost {
 public:
  // All constants are multiplied by `factor` > 0: 2 makes the engine half as fast.
  explicit StepCost(const EngineConfig& config, double factor = 1.0);

  [[nodiscard]] EngineTime of(const StepWork& work) const;

  // By how much each further step of the same decodes takes longer, as each reads one more token
  // of context for each of its `sequences`.
  [[nodiscard]] EngineTime growth(std::uint64_t sequences) const;

 private:
  std::int64_t step_ps_;
  std::int64_t weights_ps_;
  std::int64_t token_ps_;
  std::int64_t context_ps_;
  std::int64_t sequence_ps_;
  std::int64_t pair_ps_;
};

}  // namespace pointsman::sim
