// Random inserts, look-ups, forgets and capacities over a small alphabet of blocks, so that chains
// share, branch and end everywhere; no answer may exceed the truth, and every invariant holds.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/prefix_index.h"
#include "support/fuzz_check.h"
#include "support/naive_prefix_index.h"

namespace {

using pointsman::test::check;

// Hashes of a small alphabet, as if they collided all the time: answers mean nothing then, but
// nothing may break.
void run_with_collisions(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  PrefixIndex index({.max_bytes = 100 << 10});
  PrefixMatches matches;
  std::vector<BlockHash> chain;
  for (std::size_t at = 0; at + 1 < size;) {
    const std::uint8_t operation = data[at++];
    const auto replica = static_cast<ReplicaIndex>(operation % 4);
    if (operation < 4) index.forget(replica);
    if (operation >= 4 && operation < 12) index.set_capacity(replica, data[at]);
    chain.clear();
    for (std::size_t left = 1 + data[at++] % 40; left > 0 && at < size; --left) {
      chain.push_back(1 + data[at++] % 16);
    }
    index.match(chain, operation >> 4, matches);
    index.insert(chain, operation >> 4, replica);
  }
  for (ReplicaIndex replica = 0; replica < 4; ++replica) index.forget(replica);
  check(index.blocks() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  run_with_collisions(data, size);
  constexpr ReplicaIndex kReplicas = 4;
  PrefixIndex index({.max_bytes = 100 << 10});
  test::NaivePrefixIndex truth;
  PrefixMatches matches;
  std::vector<BlockHash> chain;
  std::size_t at = 0;
  const auto next = [&]() -> std::uint8_t { return at < size ? data[at++] : 0; };
  while (at < size) {
    const std::uint8_t operation = next();
    const auto replica = static_cast<ReplicaIndex>(operation % kReplicas);
    if (operation < 8) {
      index.forget(replica);
      truth.forget(replica);
      continue;
    }
    if (operation < 16) {
      index.set_capacity(replica, next());
      continue;
    }
    // Each byte continues the chain by one to sixteen blocks of one of sixteen contents.
    chain.clear();
    BlockHash before = 1;
    for (std::size_t pieces = 1 + next() % 12; pieces > 0; --pieces) {
      const std::uint8_t piece = next();
      for (int blocks = piece >> 4; blocks >= 0; --blocks) {
        before = (before + 1 + (piece & 15U)) * 0x9e3779b97f4a7c15ULL;
        before ^= before >> 29;
        chain.push_back(before);
      }
    }
    index.match(chain, operation >> 4, matches);
    check(matches.shared_blocks <= truth.shared(chain, operation >> 4));
    for (const auto& holder : matches.holders) {
      check(holder.replica < kReplicas && holder.blocks > 0);
      check(holder.blocks <= truth.match(chain, holder.replica));
    }
    index.insert(chain, operation >> 4, replica);
    truth.insert(chain, operation >> 4, replica);
    check(index.bytes() <= 100 << 10);
  }
  check(index.consistent());
  return 0;
}
