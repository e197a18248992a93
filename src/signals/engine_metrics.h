#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pointsman {

// The quantities that are read off an engine's metrics page.
enum class EngineSignal : std::uint8_t {
  kRunning,         // requests in the running batch
  kWaiting,         // requests queued
  kQueuedTokens,    // prompt tokens queued
  kKvUsage,         // share of the KV blocks in use by running requests
  kPrefixQueries,   // prompt tokens ever looked up in the prefix cache
  kPrefixMisses,    // those not found, for engines that count them instead of the look-ups
  kPrefixHits,      // those found
  kPrefixHitRate,   // found ÷ looked up, from engines that give it so
  kBlockTokens,     // tokens of a KV block
  kBlocks,          // KV blocks in all
  kCapacityTokens,  // tokens that the KV cache holds
  kAwake,           // 1: serves; 0: asleep
  kPrefixCaching,   // 1: finished prompts stay cached; 0: the cache is turned off
};
inline constexpr std::size_t kEngineSignals = 13;

// As in the configuration: "kv_usage", "waiting", …
std::string_view name_of(EngineSignal signal);
std::optional<EngineSignal> engine_signal(std::string_view name);

// What one page says. A quantity that it does not say, or says as NaN, infinite or out of its
// range, is unknown: NaN for numbers, 0 for sizes. Never a zero that nobody reported.
struct EngineReading {
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  std::string_view engine;  // "vllm", "sglang", …; empty: no known name was on the page
  float running = kUnknown;
  float waiting = kUnknown;
  float queued_tokens = kUnknown;
  float kv_usage = kUnknown;         // [0, 1]
  float prefix_hit_rate = kUnknown;  // [0, 1], since the engine's start
  double prefix_queries = std::numeric_limits<double>::quiet_NaN();
  double prefix_hits = std::numeric_limits<double>::quiet_NaN();
  std::uint32_t block_tokens = 0;
  std::uint64_t kv_capacity_tokens = 0;
  std::uint64_t kv_blocks = 0;  // of all ranks
  std::optional<bool> awake;
  std::optional<bool> prefix_caching;
  // A known metric whose value cannot be what its name says (a KV use of 41), where its signal is
  // unknown for that reason; empty where there was none.
  std::string_view implausible;
  double implausible_value = 0;
  // The metric that each signal was read from, for people; empty where there was none.
  std::array<std::string_view, kEngineSignals> source{};

  // Whether anything at all was found that tells the replica's load.
  [[nodiscard]] bool any_load() const;
};

// Reads the metrics pages of vLLM, SGLang, TensorRT-LLM (trtllm-serve and Triton), LMDeploy, TGI
// and llama.cpp, by the names of their present and former releases, newest first; the engine is the
// one most of whose names are there. Names of one's own go before all of these.
//
// One page may hold several data-parallel ranks. Waiting, running, queued tokens, prefix counts and
// capacity are summed over them; of KV usage the *largest* counts, since the engine places a
// request on a rank out of our sight and a full one makes it wait; a replica is awake if all ranks
// are. Of tensor- and pipeline-parallel ranks, which say the same thing several times, the first is
// read.
//
// Const after construction and thread-safe then; the views of a reading stay valid while this does.
class EngineMetrics {
 public:
  // A metric of one's own: `selector` is name or name{label="value",…}, quotes optional.
  struct OwnMetric {
    EngineSignal signal;
    std::string selector;
  };

  EngineMetrics() : EngineMetrics(std::vector<OwnMetric>{}) {}
  // `own` must have passed check().
  explicit EngineMetrics(const std::vector<OwnMetric>& own);

  [[nodiscard]] EngineReading read(std::string_view page) const;

  // Whether a selector can be read, and what is wrong with it.
  static Result<void> check(std::string_view selector);

 private:
  struct Match {
    std::string label;
    std::string value;
  };
  // Where one signal may be found.
  struct Candidate {
    std::string name;
    std::vector<Match> matches;
    std::string value_label;  // the reading is this label's text, not the sample's value
    EngineSignal signal{};
    std::uint8_t engine = 0;  // index into the engines' names; 0: one's own
  };

  static Result<Candidate> parse_selector(std::string_view selector);
  void add(Candidate candidate);

  std::vector<Candidate> candidates_;  // of a signal and an engine, best first
  // Candidates by the length of their name: most lines are dismissed by it and one comparison.
  std::vector<std::vector<std::uint16_t>> by_length_;
};

}  // namespace pointsman
