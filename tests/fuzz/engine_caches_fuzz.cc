// Random events of five engines with ranks and tiers; every answer must be that of a naive account,
// whatever is removed from the middle, and memory stays within its limit.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "support/engine_caches_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman;
  std::size_t at = 0;
  const auto draw = [&](std::uint64_t bound) {
    return at < size ? data[at++] % bound : std::uint64_t{0};
  };
  const std::size_t max_bytes = draw(2) == 0 ? std::size_t{1} << 20 : std::size_t{96} << 10;
  const std::size_t depth = 1 + draw(40);
  test::EngineCachesTrial trial({.max_bytes = max_bytes}, 4, depth, draw);
  while (at < size) {
    if (!trial.step()) std::abort();
  }
  if (!trial.caches.consistent()) std::abort();
  return 0;
}
