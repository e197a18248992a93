#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pointsman {

// What an engine calls a block of its KV cache: opaque, equal for equal prefixes. A hash that is
// published as bytes counts by its last eight bytes, which is the form that engines publish as an
// integer; a negative integer counts by its bits.
using EngineHash = std::uint64_t;

// What else than its tokens went into a block's hash.
struct BlockExtras {
  std::string_view salt;  // named as the cache salt
  std::string_view lora;  // named as the adapter
  // Of the names without a tag that releases up to 0.28 give, and 0.32 in its events: an adapter, a
  // salt or a picture, which only their place can tell.
  std::string_view bare[2];
  std::uint8_t bare_count = 0;
  bool other = false;  // something else, or more bare names than have room here

  [[nodiscard]] bool none() const {
    return salt.empty() && lora.empty() && bare_count == 0 && !other;
  }
};

// One event. The spans and views point into the batch and into the payload that it was read from.
struct KvEvent {
  enum class Type : std::uint8_t {
    kStored,   // blocks are in the cache now, one after the other along one prefix
    kRemoved,  // blocks are not any more
    kCleared,  // nothing is any more
  };
  Type type = Type::kCleared;
  std::string_view medium;            // where: "GPU", "CPU", …; empty: not said
  std::optional<std::int64_t> group;  // of layers with caches of their own, in hybrid models
  std::span<const EngineHash> blocks;
  // Of stored blocks alone.
  std::optional<EngineHash> parent;       // the block before the first; none: it begins the prompt
  std::span<const std::uint32_t> tokens;  // of all blocks; may be empty where they are known
  std::uint32_t block_tokens = 0;
  bool has_lora = false;  // of an adapter, whose name may be missing (releases to 0.13)
  std::string_view lora;
  std::string_view spec_kind;           // "full_attention", "sliding_window", "mamba", …
  std::span<const BlockExtras> extras;  // one for each block, or empty
};

// What one message says.
struct EventBatch {
  double time = 0;                   // when it was made, Unix seconds
  std::optional<std::int64_t> rank;  // data-parallel rank
  std::vector<KvEvent> events;
  std::uint32_t unreadable = 0;  // events that are not in `events` since they made no sense

  // What the events' spans point to.
  std::vector<EngineHash> hashes;
  std::vector<std::uint32_t> tokens;
  std::vector<BlockExtras> extras;
};

}  // namespace pointsman
