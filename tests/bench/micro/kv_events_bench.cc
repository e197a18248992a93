#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "core/engine_caches.h"
#include "kv_events/event_stream.h"
#include "support/event_payload.h"

namespace pointsman {
namespace {

constexpr std::size_t kBlocksInCache = 20'000;  // of the engine
constexpr std::size_t kPromptBlocks = 20;
constexpr std::size_t kPayloads = 20'000;

// Batches as an engine under load publishes them: twenty blocks of a new prompt and, from when its
// cache is full, twenty removals before, each an event of its own, tails first.
std::vector<std::string> payloads(std::uint32_t block_tokens) {
  Rng rng(3);
  std::vector<std::string> all;
  std::vector<std::vector<std::uint64_t>> prompts;
  for (std::size_t i = 0; i < kPayloads; ++i) {
    test::StoredEvent stored;
    stored.block_tokens = block_tokens;
    for (std::size_t b = 0; b < kPromptBlocks; ++b) stored.blocks.push_back(rng());
    for (std::size_t t = 0; t < kPromptBlocks * block_tokens; ++t) {
      stored.tokens.push_back(static_cast<std::uint32_t>(rng.below(60'000)));
    }
    prompts.push_back(stored.blocks);
    test::Pack events;
    const bool full = (i + 1) * kPromptBlocks > kBlocksInCache;
    events.array(3).real(1).array(full ? kPromptBlocks + 1 : 1);
    if (full) {
      const std::vector<std::uint64_t>& old = prompts[i - kBlocksInCache / kPromptBlocks];
      for (std::size_t b = old.size(); b-- > 0;) events.raw(test::packed_removed({old[b]}));
    }
    events.raw(test::packed(stored)).whole(0);
    all.push_back(events.bytes());
  }
  return all;
}

class IntoCaches : public CacheChanges {
 public:
  void store(Tier tier, std::optional<BlockHash> before, std::span<const BlockHash> keys,
             std::vector<BlockHash>& again) override {
    caches.store({0, 0, tier}, before, keys, &again);
  }
  void remove(Tier tier, std::span<const BlockHash> keys, bool tails) override {
    caches.remove({0, 0, tier}, keys, tails);
  }
  void clear() override { caches.clear(0, 0); }

  EngineCaches caches{EngineCaches::Options{}};
};

// Decoded, placed and applied; items are blocks, stored or removed.
void follow_events(benchmark::State& state) {
  const std::vector<std::string> batches = payloads(static_cast<std::uint32_t>(state.range(0)));
  const TokenChain chain(7);
  std::size_t bytes = 0;
  std::size_t held = 0;
  for (auto _ : state) {
    TableBudget budget;
    EventStream::Options options;
    options.can_replay = false;
    EventStream stream(chain, budget, "base", options);
    IntoCaches changes;
    std::uint64_t number = 0;
    for (const std::string& batch : batches) stream.published(number++, batch, changes);
    bytes = stream.blocks().bytes();
    held = stream.blocks().blocks();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(
                                                   2 * kPayloads * kPromptBlocks - kBlocksInCache));
  state.counters["table_bytes_per_block"] = static_cast<double>(bytes) / static_cast<double>(held);
}
BENCHMARK(follow_events)->Arg(16)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pointsman
