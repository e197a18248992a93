#pragma once

#include <cstdint>

namespace pointsman {

// A replica's place in every per-replica table. Dense from 0, stable for as long as the replica is
// configured; given to another replica only after everything known of the former one was forgotten.
using ReplicaIndex = std::uint32_t;
inline constexpr ReplicaIndex kNoReplica = ~ReplicaIndex{0};

// The most replicas of one process. Tables indexed by ReplicaIndex never grow beyond it.
inline constexpr std::size_t kMaxReplicas = 8192;

using PoolIndex = std::uint16_t;

// One engine process with its own KV cache, as a policy sees it. What it reports is in Signals,
// what we have sent it is in the Ledger.
struct Replica {
  // Hash of the replica's URL: the same in every router, so that consistent hashes agree without
  // any exchange between routers.
  std::uint64_t identity = 0;
  // Capacity relative to the others, > 0.
  double weight = 1.0;
  PoolIndex pool = 0;
  // May be given new requests: healthy, not ejected, not draining, awake.
  bool usable = false;
  // Tokens of KV cache as configured, for a replica that does not report them; 0: not configured.
  std::uint64_t kv_capacity_tokens = 0;
};

}  // namespace pointsman
