#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "core/engine_caches.h"

namespace pointsman {
namespace {

using Chain = std::vector<BlockHash>;

// The shapes of prefix_index_bench.cc, so that the two can be read side by side.
constexpr std::size_t kPromptBlocks = 1'563;
constexpr ReplicaIndex kReplicas = 64;
constexpr std::size_t kPrompts = 16;
constexpr TimePoint kNow{std::chrono::hours(1)};

Chain random_chain(Rng& rng, std::size_t blocks) {
  Chain chain(blocks);
  for (BlockHash& hash : chain) hash = rng();
  return chain;
}

// What 64 engines say of a million blocks. Sixteen prompts of 25 K tokens are held by the first
// `holders` engines to different depths; the rest are chats of eleven blocks after one of sixteen
// common beginnings that every engine holds.
struct Fixture {
  EngineCaches caches{{.max_bytes = std::size_t{1} << 30}};
  std::vector<Chain> prompts;
  std::vector<Chain> chats;
  Rng rng{3};

  explicit Fixture(ReplicaIndex holders) {
    for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
      caches.set_trust(replica, Trust::kTrusted);
    }
    std::vector<Chain> systems;
    for (int i = 0; i < 16; ++i) {
      systems.push_back(random_chain(rng, 31));
      for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
        caches.store({.replica = replica}, std::nullopt, systems.back());
      }
    }
    std::uint64_t distinct = 0;
    for (std::size_t p = 0; p < kPrompts; ++p) {
      prompts.push_back(random_chain(rng, kPromptBlocks));
      distinct += kPromptBlocks;
      for (ReplicaIndex replica = 0; replica < holders; ++replica) {
        caches.store({.replica = replica}, std::nullopt,
                     std::span(prompts.back()).first(1 + rng.below(kPromptBlocks)));
      }
    }
    for (; distinct < 1'000'000; distinct += 11) {
      Chain chat = systems[rng.below(systems.size())];
      for (int i = 0; i < 11; ++i) chat.push_back(rng());
      caches.store({.replica = static_cast<ReplicaIndex>(rng.below(kReplicas))}, std::nullopt,
                   chat);
      if (chats.size() < 4'096) chats.push_back(std::move(chat));
    }
  }
};

void look_up(benchmark::State& state, Fixture& fixture, const std::vector<Chain>& chains) {
  std::vector<EngineCaches::Match> matches;
  std::size_t i = 0;
  for (auto _ : state) {
    fixture.caches.match(chains[i++ % chains.size()], kNow, matches);
    benchmark::DoNotOptimize(matches.data());
  }
  state.counters["holders"] = static_cast<double>(matches.size());
  state.counters["bytes_per_block"] =
      static_cast<double>(fixture.caches.bytes()) / static_cast<double>(fixture.caches.blocks());
}

// Aim: at most 2 µs. A prompt of 25 K tokens; the argument is how many engines hold part of it.
void BM_EngineCachesLookup(benchmark::State& state) {
  Fixture fixture(static_cast<ReplicaIndex>(state.range(0)));
  look_up(state, fixture, fixture.prompts);
}
BENCHMARK(BM_EngineCachesLookup)->Arg(1)->Arg(4)->Arg(64);

// Chats of 42 blocks: one engine holds all, the 63 others the beginning.
void BM_EngineCachesLookupChat(benchmark::State& state) {
  Fixture fixture(4);
  look_up(state, fixture, fixture.chats);
}
BENCHMARK(BM_EngineCachesLookupChat);

// The same where no engine's blocks are known to be closed: block by block.
void BM_EngineCachesLookupOpen(benchmark::State& state) {
  Fixture fixture(static_cast<ReplicaIndex>(state.range(0)));
  for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
    const Chain last{fixture.prompts[0].back()};
    fixture.caches.store({.replica = replica}, std::nullopt, last);
    fixture.caches.remove({.replica = replica}, last, false);
  }
  look_up(state, fixture, fixture.prompts);
}
BENCHMARK(BM_EngineCachesLookupOpen)->Arg(4)->Arg(64);

// Engines that are full: for each block that one stores it removes its oldest. Slices of 64 blocks,
// a million blocks in all. Items are blocks stored or removed.
void BM_EngineCachesApply(benchmark::State& state) {
  EngineCaches caches({.max_bytes = std::size_t{1} << 30});
  Rng rng(5);
  constexpr std::size_t kSlice = 64;
  constexpr std::size_t kHeld = 1'000'000 / kSlice;
  std::vector<Chain> held;
  for (std::size_t i = 0; i < kHeld; ++i) {
    held.push_back(random_chain(rng, kSlice));
    caches.store({.replica = static_cast<ReplicaIndex>(i % kReplicas)}, std::nullopt, held.back());
  }
  std::size_t at = 0;
  for (auto _ : state) {
    const EngineCache cache{.replica = static_cast<ReplicaIndex>(at % kReplicas)};
    caches.remove(cache, held[at], true);
    for (BlockHash& block : held[at]) block = block * 0x9e3779b97f4a7c15ULL + 1;
    caches.store(cache, std::nullopt, held[at]);
    at = (at + 1) % kHeld;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(2 * kSlice));
  state.counters["bytes_per_block"] =
      static_cast<double>(caches.bytes()) / static_cast<double>(caches.blocks());
}
BENCHMARK(BM_EngineCachesApply);

}  // namespace
}  // namespace pointsman
