#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/rng.h"
#include "base/time.h"
#include "core/decision.h"
#include "core/engine_caches.h"
#include "core/features.h"
#include "core/ledger.h"
#include "core/prefix_index.h"
#include "core/replica.h"
#include "core/signals.h"

namespace pointsman {

// Where a replica counts as saturated: no reason to leave it out, only to prefer others.
struct SaturationLimits {
  double kv = 0.9;                 // live KV use, [0, 1]
  double queue = 16;               // live queue, requests
  double prefill_tokens = 32'768;  // outstanding prefill, peers' included; at least the own prompt
};

// Everything a stage may look at. Stages are pure: same context, same state and same generator give
// the same answer. The spans by ReplicaIndex have an entry for every candidate.
struct Context {
  const Features& features;
  std::span<const Replica> replicas;  // by ReplicaIndex
  std::span<const Signals> signals;   // by ReplicaIndex
  const Ledger& ledger;
  std::span<const std::uint32_t> matched_blocks;   // by ReplicaIndex: leading blocks held there
  std::span<const PrefixMatches::Holder> holders;  // the same as a list of those above zero
  std::uint32_t shared_blocks = 0;                 // leading blocks seen under several sessions
  const SaturationLimits& limits;
  TimePoint now;
  Rng& rng;
  // By ReplicaIndex: how far it is believed to have cached what was sent there, see
  // core/prefix_trust.h; it is in the matched blocks already. Empty: fully.
  std::span<const float> believed_shares{};
  // Of the replicas that it trusts, what they hold of this prompt is by their engines' own word.
  // Null: of none, as without token ids.
  const EngineCaches* engine_caches = nullptr;
  // The matches are those of an index that several routers share (core/prefix_source.h).
  bool shared_index = false;
  // Stages may say why; the last word wins.
  Reason reason = Reason::kPolicy;

  // Tokens of the request's prompt believed to be cached on the replica: never the whole prompt,
  // since an engine always computes the last block.
  [[nodiscard]] std::uint32_t cached_tokens(ReplicaIndex replica) const;
  // Tokens of the request's prompt that the replica is expected to compute.
  [[nodiscard]] std::uint32_t uncached_tokens(ReplicaIndex replica) const {
    return features.prompt_tokens - cached_tokens(replica);
  }
  // The share of what was sent to the replica that is believed to be cached there, in [0, 1].
  [[nodiscard]] double believed_share(ReplicaIndex replica) const {
    return replica < believed_shares.size() ? double{believed_shares[replica]} : 1.0;
  }
  // Whether what other routers sent to the replica is in its matched blocks too: what is not found
  // there is not cached there.
  [[nodiscard]] bool knows_cache(ReplicaIndex replica) const {
    return shared_index || (engine_caches != nullptr && engine_caches->trusted(replica));
  }
  // Tokens of the replica's KV cache: as reported last, else as configured; 0: unknown.
  [[nodiscard]] std::uint64_t kv_capacity(ReplicaIndex replica) const {
    const std::uint64_t reported = signals[replica].kv_capacity_tokens;
    return reported > 0 ? reported : replicas[replica].kv_capacity_tokens;
  }
};

// The tokens that so many leading blocks are for the request, at most all but the prompt's last
// block.
[[nodiscard]] inline std::uint32_t cached_tokens(const Features& features,
                                                 std::uint32_t matched_blocks);

// The live KV reading: the newest report plus the prompt tokens of own requests sent since it was
// asked for, over the capacity (capacity unknown: the bare report). `known` is false where there is
// no fresh report, and then `usage` means nothing.
struct KvReading {
  bool known = false;
  double usage = 0;
};
[[nodiscard]] inline KvReading live_kv(const Context& context, ReplicaIndex replica);
// The newest report alone.
[[nodiscard]] inline KvReading reported_kv(const Context& context, ReplicaIndex replica);

// The live queue: the larger of (reported waiting + own requests sent since that report and without
// a first token) and all own requests without a first token.
[[nodiscard]] inline double live_queue(const Context& context, ReplicaIndex replica);

// The live KV reading is known and at its limit or beyond.
[[nodiscard]] inline bool kv_full(const Context& context, const KvReading& live);

// At any of the limits or beyond.
[[nodiscard]] inline bool saturated(const Context& context, ReplicaIndex replica);
// The same for who has asked for the two readings already.
[[nodiscard]] inline bool saturated(const Context& context, ReplicaIndex replica,
                                    const KvReading& live, double queue);

// --- Inline, since a decision asks each of them for every candidate.

inline std::uint32_t cached_tokens(const Features& features, std::uint32_t matched_blocks) {
  if (matched_blocks == 0 || features.prompt_tokens == 0) return 0;
  const std::uint64_t block = std::max<std::uint32_t>(features.block_tokens, 1);
  const std::uint32_t tokens =
      features.chain_tokens == 0 ? features.prompt_tokens : features.chain_tokens;
  const std::uint64_t most = (tokens - 1) / block * block;
  return static_cast<std::uint32_t>(std::min(matched_blocks * block, most));
}

inline std::uint32_t Context::cached_tokens(ReplicaIndex replica) const {
  return pointsman::cached_tokens(features, matched_blocks[replica]);
}

inline KvReading reported_kv(const Context& context, ReplicaIndex replica) {
  const Signals& signals = context.signals[replica];
  return {signals.knows_kv(context.now), signals.kv_usage};
}

inline KvReading live_kv(const Context& context, ReplicaIndex replica) {
  KvReading reading = reported_kv(context, replica);
  const std::uint64_t capacity = context.kv_capacity(replica);
  if (capacity > 0) {
    reading.usage += static_cast<double>(context.ledger[replica].tokens_since_report) /
                     static_cast<double>(capacity);
  }
  return reading;
}

inline double live_queue(const Context& context, ReplicaIndex replica) {
  const Load& load = context.ledger[replica];
  const Signals& signals = context.signals[replica];
  const double own = load.awaiting;
  if (!signals.knows_waiting(context.now)) return own;
  return std::max(own, static_cast<double>(signals.waiting) + load.awaiting_since_report);
}

inline bool kv_full(const Context& context, const KvReading& live) {
  // As floats, as readings are reported: 0.9 is not below 0.9.
  return live.known && static_cast<float>(live.usage) >= static_cast<float>(context.limits.kv);
}

inline bool saturated(const Context& context, ReplicaIndex replica, const KvReading& live,
                      double queue) {
  const SaturationLimits& limits = context.limits;
  const double prompt = context.features.prompt_tokens;
  return static_cast<double>(context.ledger[replica].all_prefill_tokens()) >=
             std::max(limits.prefill_tokens, prompt) ||
         queue >= limits.queue || kv_full(context, live);
}

inline bool saturated(const Context& context, ReplicaIndex replica) {
  return saturated(context, replica, live_kv(context, replica), live_queue(context, replica));
}

}  // namespace pointsman
