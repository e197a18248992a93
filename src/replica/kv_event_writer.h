#pragma once

#include <cstdint>
#include <string>

#include "replica/kv_journal.h"

namespace pointsman {

// How an event is written: with the names of its fields, as vLLM does since 0.23, or as an array,
// as vLLM 0.20 does and SGLang with fewer fields.
enum class KvLayout : std::uint8_t { kMap, kArray };

// How a block's hash is written: a whole number of 64 bits, or a digest of 32 bytes that ends with
// it (the numbers that vLLM publishes are the last bytes of its digests).
enum class KvHashes : std::uint8_t { kNumbers, kBytes };

// A batch of events in MessagePack: [time, [event…], rank 0]. Each removed block is an event of its
// own. `time` is in Unix seconds.
[[nodiscard]] std::string write_event_batch(const KvChanges& changes, double time, KvLayout layout,
                                            KvHashes hashes);

}  // namespace pointsman
