#include "features/block_hash.h"

#include <algorithm>
#include <cstring>

// Compiled in: a call into the library costs more than the hash of a short piece.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pointsman {

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t chain_seed(std::string_view model, std::string_view cache_salt) {
  return hash_bytes(cache_salt, hash_bytes(model));
}

BlockHasher::BlockHasher(std::uint32_t block_bytes)
    : block_bytes_(std::max<std::uint32_t>(block_bytes, 1)), carry_(block_bytes_) {}

void BlockHasher::reset(std::uint64_t seed, std::vector<BlockHash>& out) {
  last_ = seed;
  out_ = &out;
  carried_ = 0;
}

void BlockHasher::block(const char* bytes) {
  last_ = XXH3_64bits_withSeed(bytes, block_bytes_, last_);
  out_->push_back(last_);
}

void BlockHasher::add(std::string_view bytes) {
  if (carried_ > 0) {
    const std::size_t part = std::min(bytes.size(), block_bytes_ - carried_);
    std::memcpy(carry_.data() + carried_, bytes.data(), part);
    carried_ += part;
    bytes.remove_prefix(part);
    if (carried_ < block_bytes_) return;
    block(carry_.data());
    carried_ = 0;
  }
  for (; bytes.size() >= block_bytes_; bytes.remove_prefix(block_bytes_)) block(bytes.data());
  if (bytes.empty()) return;
  std::memcpy(carry_.data(), bytes.data(), bytes.size());
  carried_ = bytes.size();
}

}  // namespace pointsman
