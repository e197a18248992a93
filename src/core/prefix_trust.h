#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/replica.h"

namespace pointsman {

// What a prediction of cached tokens was made from.
enum class Knowledge : std::uint8_t {
  kSent,    // what was sent to the replica before: an approximation
  kEvents,  // its engine's own cache events
};
inline constexpr std::size_t kKnowledges = 2;

constexpr std::string_view label(Knowledge knowledge) {
  return knowledge == Knowledge::kEvents ? "events" : "sent";
}

// How far predictions of cached tokens came true on one replica, since start.
struct CachedTokensError {
  // Upper bounds of the histogram's buckets, in tokens; the last bucket has none.
  static constexpr std::array<double, 16> kBounds = {0,      16,     32,      64,     128,   256,
                                                     512,    1'024,  2'048,   4'096,  8'192, 16'384,
                                                     32'768, 65'536, 131'072, 262'144};

  std::uint64_t answers = 0;                                // that said how much was cached
  std::uint64_t over_tokens = 0;                            // predicted, and not found
  std::uint64_t under_tokens = 0;                           // found, and not predicted
  std::array<std::uint64_t, kBounds.size() + 1> buckets{};  // answers by the error's size
  std::uint32_t last_predicted = 0;                         // of the newest answer
  std::uint32_t last_actual = 0;
};

// Whether what a router believes of the replicas' prefix caches comes true, and what it makes of it
// where it does not. Predictions meet what the engines say: each answer's usage, and where answers
// carry none, the counters of the engines' metrics, as a coarse rate.
//
// Two corrections, per replica:
//
// - The *believed share* of a predicted match, from 0 to 1. It follows actual over predicted tokens
//   by an EWMA (kGain per answer), apart for the two kinds of knowledge. From kRight on it is 1,
//   and up to kWrong it is 0: a replica that never hits (its prefix cache is off, or of no use to
//   its model) is soon chosen as if there were no index, and believed again once it hits.
// - The *capacity* assumed of its cache, in blocks. A replica that keeps missing has room for less
//   than it reports, since other traffic and its own answers lie there too. Each miss takes
//   1 - kShrink of what the index holds of it, down to a floor; each hit gives back a little, until
//   what was reported is reached.
//
// Not errors: an answer without usage; the last block, which an engine always computes and nobody
// predicts; what one block of the engine rounds off.
//
// Deterministic, and without allocation once grown. Not thread-safe.
class PrefixTrust {
 public:
  static constexpr double kGain = 1.0 / 8;
  static constexpr double kWrong = 0.1;
  static constexpr double kRight = 0.9;
  static constexpr double kShrink = 0.95;
  static constexpr double kGrow = 1.005;
  // Predictions of fewer tokens tell nothing.
  static constexpr std::uint32_t kLeastTokens = 64;
  // A capacity is never taken to be below this share of what is reported.
  static constexpr double kFloor = 1.0 / 16;
  // A capacity that is not reported is never taken to be below so many blocks.
  static constexpr double kFloorBlocks = 1'024;

  // A request's end, as far as predictions go. All in the engine's count of tokens.
  struct Answer {
    Knowledge from = Knowledge::kSent;
    std::uint32_t prompt_tokens = 0;
    std::uint32_t matched_tokens = 0;              // cached by the index's word
    std::uint32_t predicted_tokens = 0;            // the believed share of that
    std::optional<std::uint32_t> cached_tokens{};  // by the answer's usage; nothing: it has none
    std::uint32_t block_tokens = 16;               // of the index or the engine, the larger
    std::uint64_t held_blocks = 0;                 // that the approximate index gives the replica
  };

  // Room for replicas below `replicas`.
  void grow(std::size_t replicas) {
    if (replicas <= states_.size()) return;
    states_.resize(replicas);
    shares_.resize(replicas, 1.0F);
  }

  // A request ended well, or with usage. The capacity may have changed.
  void answered(ReplicaIndex replica, const Answer& answer);

  // A report of the engine's counters: prompt tokens looked up in its prefix cache and found there,
  // since its start. NaN, from a report without them, says nothing. The capacity may have changed.
  void counted(ReplicaIndex replica, double queries, double hits, std::uint64_t held_blocks);

  // Whether the engine keeps finished prompts at all, by its own word.
  void set_caching(ReplicaIndex replica, bool caching);

  // The blocks that the replica reports to have; 0: it does not say.
  void set_capacity(ReplicaIndex replica, std::uint64_t blocks);

  // The blocks that it is taken to have room for; 0: no bound is known.
  [[nodiscard]] std::uint64_t capacity(ReplicaIndex replica) const;

  // Whether any replica is believed less than fully.
  [[nodiscard]] bool any_doubted() const { return doubted_ > 0; }

  // The believed share of predictions, in [0, 1].
  [[nodiscard]] double share(ReplicaIndex replica, Knowledge from) const;
  // The same of what was sent, by ReplicaIndex.
  [[nodiscard]] std::span<const float> shares() const { return shares_; }

  // The replica restarted or left: it is believed as at first. Errors stay counted.
  void forget(ReplicaIndex replica);

  [[nodiscard]] const CachedTokensError& error(ReplicaIndex replica) const;

 private:
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  // Tokens since the last time that the counters were compared with what was predicted.
  struct Window {
    double prompts = 0;
    double matched = 0;
    double queries = 0;
    double hits = 0;
    std::uint32_t told = 0;    // answers with usage
    std::uint32_t silent = 0;  // answers without
  };

  struct State {
    std::array<double, kKnowledges> rate{1.0, 1.0};  // EWMA of actual over predicted
    bool caching = true;
    bool doubted = false;
    std::uint64_t reported = 0;  // blocks; 0: not reported
    double limit = 0;            // blocks, below what is reported; 0: no limit of our own
    double limit_end = 0;        // where the limit is lifted, if nothing is reported
    double last_queries = kUnknown;
    double last_hits = kUnknown;
    Window window;
    CachedTokensError error;
  };

  // `ratio`: actual over predicted, in [0, 1], as `answers` of them had it.
  void learn(State& state, Knowledge from, double ratio, std::uint32_t answers,
             std::uint64_t held_blocks);
  void correct_capacity(State& state, double ratio, std::uint64_t held_blocks);
  void settle(ReplicaIndex replica);

  std::vector<State> states_;  // by ReplicaIndex
  std::vector<float> shares_;  // by ReplicaIndex
  std::size_t doubted_ = 0;
};

}  // namespace pointsman
