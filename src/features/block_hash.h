#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/features.h"

namespace pointsman {

// A 64-bit hash (XXH3) of bytes, and the same continued from an earlier hash.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0);

// What chains of different worlds start from: the served model (an adapter is served under a name
// of its own, so the name stands for the LoRA as well) and the cache salt. Equal prompts of
// different worlds share nothing in an engine's cache, and so nothing here.
std::uint64_t chain_seed(std::string_view model, std::string_view cache_salt);

// Turns a stream of bytes into the chain of its whole blocks:
//   h(i) = XXH3(block i, seed h(i-1)), h(-1) = the chain's seed.
// Blocks are of bytes throughout, not of characters; a block may end inside a character. A last
// incomplete block yields nothing. Token ids have chains of their own (core/token_chain.h).
//
// Reusable: reset() for each chain. Not thread-safe. About 8 ns per block of 64 bytes.
class BlockHasher {
 public:
  explicit BlockHasher(std::uint32_t block_bytes);

  // Starts a chain; hashes are appended to `out`, which must outlive the use.
  void reset(std::uint64_t seed, std::vector<BlockHash>& out);
  void add(std::string_view bytes);

 private:
  void block(const char* bytes);

  std::size_t block_bytes_;
  std::uint64_t last_ = 0;
  std::vector<BlockHash>* out_ = nullptr;
  std::size_t carried_ = 0;
  std::vector<char> carry_;  // the incomplete block; block_bytes_ large
};

}  // namespace pointsman
