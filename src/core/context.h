#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "base/time.h"
#include "core/decision.h"
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
  double prefill_tokens = 32'768;  // outstanding prefill; at least the request's own prompt
};

// Everything a stage may look at. Stages are pure: same context, same state and same generator give
// the same answer.
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
  // Stages may say why; the last word wins.
  Reason reason = Reason::kPolicy;

  // Tokens of the request's prompt believed to be cached on the replica: never the whole prompt,
  // since an engine always computes the last block.
  [[nodiscard]] std::uint32_t cached_tokens(ReplicaIndex replica) const;
  // Tokens of the request's prompt that the replica is expected to compute.
  [[nodiscard]] std::uint32_t uncached_tokens(ReplicaIndex replica) const {
    return features.prompt_tokens - cached_tokens(replica);
  }
};

// The live KV reading: the newest report plus the prompt tokens of own requests sent since it was
// asked for, over the capacity (capacity unknown: the bare report). `known` is false where there is
// no fresh report, and then `usage` means nothing.
struct KvReading {
  bool known = false;
  double usage = 0;
};
[[nodiscard]] KvReading live_kv(const Context& context, ReplicaIndex replica);
// The newest report alone.
[[nodiscard]] KvReading reported_kv(const Context& context, ReplicaIndex replica);

// The live queue: the larger of (reported waiting + own requests sent since that report and without
// a first token) and all own requests without a first token.
[[nodiscard]] double live_queue(const Context& context, ReplicaIndex replica);

// The live KV reading is known and at its limit or beyond.
[[nodiscard]] bool kv_full(const Context& context, ReplicaIndex replica);

// At any of the limits or beyond.
[[nodiscard]] bool saturated(const Context& context, ReplicaIndex replica);

}  // namespace pointsman
