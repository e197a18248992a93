#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kv_events/event_batch.h"

namespace pointsman {

// Reads the payload of a cache event message of vLLM or SGLang into `batch`, whose memory is used
// again. False where the payload is not one; then `batch` means nothing.
//
//   batch     [time, [event, …], rank], shorter or longer, or a map of ts, events,
//             data_parallel_rank
//   event     a map with "type" (vLLM since 0.23) or an array with the type first (before; SGLang):
//     BlockStored       block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium,
//                       lora_name, extra_keys, group_idx, kv_cache_spec_kind
//     BlockRemoved      block_hashes, medium, group_idx
//     AllBlocksCleared
//
// Later fields of an array may be missing, unknown ones and unknown keys are passed over. Events of
// an unknown type say nothing of the cache and are passed over too; a known event that does not
// make sense (no list of hashes, token ids that are no numbers, not as many as its blocks have) is
// left out and counted. Memory is in proportion to the payload.
[[nodiscard]] bool decode_event_batch(std::string_view payload, EventBatch& batch);

// The data-parallel rank that a payload names, without reading its events. Nothing where it names
// none, or is no batch.
[[nodiscard]] std::optional<std::int64_t> batch_rank(std::string_view payload);

}  // namespace pointsman
