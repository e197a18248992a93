#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "core/prefix_index.h"

namespace pointsman {
namespace {

using Chain = std::vector<BlockHash>;

constexpr std::size_t kPromptBlocks = 1'563;  // 100 KB of text in blocks of 64 bytes
constexpr ReplicaIndex kReplicas = 64;
constexpr std::size_t kPrompts = 16;

Chain random_chain(Rng& rng, std::size_t blocks) {
  Chain chain(blocks);
  for (BlockHash& hash : chain) hash = rng();
  return chain;
}

// An index of a million blocks. Each of sixteen prompts of 100 KB is held by all 64 replicas to
// different depths; the rest are chats of eleven blocks after one of sixteen common beginnings.
struct Fixture {
  std::unique_ptr<PrefixIndex> index =
      std::make_unique<PrefixIndex>(PrefixIndex::Options{.max_bytes = std::size_t{1} << 30});
  std::vector<Chain> prompts;
  Rng rng{3};

  explicit Fixture(std::size_t branches) {
    std::vector<Chain> systems;
    for (int i = 0; i < 16; ++i) systems.push_back(random_chain(rng, 31));
    std::uint64_t distinct = 0;
    for (std::size_t p = 0; p < kPrompts; ++p) {
      prompts.push_back(random_chain(rng, kPromptBlocks));
      distinct += kPromptBlocks;
      for (ReplicaIndex replica = 0; replica < kReplicas; ++replica) {
        Chain held = prompts.back();
        held.resize(1 + rng.below(kPromptBlocks));
        index->insert(held, 1, replica);
      }
      // Other prompts that leave this one at some block, from the replica that holds most of it.
      for (std::size_t b = 0; b < branches; ++b) {
        Chain other = prompts.back();
        other.resize(kPromptBlocks * (b + 1) / (branches + 1));
        for (int i = 0; i < 5; ++i) other.push_back(rng());
        index->insert(prompts.back(), 1, 0);
        index->insert(other, 2 + b, 0);
      }
    }
    for (std::uint64_t session = 1; distinct < 1'000'000; ++session, distinct += 11) {
      Chain chat = systems[rng.below(systems.size())];
      for (int i = 0; i < 11; ++i) chat.push_back(rng());
      index->insert(chat, session, static_cast<ReplicaIndex>(rng.below(kReplicas)));
    }
  }
};

// Aim: at most 2 µs. The argument is the number of branching points along each prompt.
void BM_PrefixLookup(benchmark::State& state) {
  const Fixture fixture(static_cast<std::size_t>(state.range(0)));
  PrefixMatches matches;
  std::size_t i = 0;
  for (auto _ : state) {
    fixture.index->match(fixture.prompts[i++ % kPrompts], 7, matches);
    benchmark::DoNotOptimize(matches.holders.data());
  }
  state.counters["holders"] = static_cast<double>(matches.holders.size());
}
BENCHMARK(BM_PrefixLookup)->Arg(0)->Arg(4)->Arg(32);

// The same prompt sent again to a replica that holds it: what a look-up's update costs.
void BM_PrefixUpdate(benchmark::State& state) {
  Fixture fixture(4);
  std::size_t i = 0;
  for (auto _ : state) {
    fixture.index->insert(fixture.prompts[i % kPrompts], 7, static_cast<ReplicaIndex>(i % 4));
    ++i;
  }
}
BENCHMARK(BM_PrefixUpdate);

// Conversations that grow by ten blocks a turn, each on its own replica, look-up and update
// together. The argument is the limit in MiB: at 8 the index is full and evicts all the time.
void BM_PrefixTurn(benchmark::State& state) {
  PrefixIndex index({.max_bytes = static_cast<std::size_t>(state.range(0)) << 20});
  Rng rng(5);
  const Chain system = random_chain(rng, 31);
  std::vector<Chain> chats(5'000, system);
  PrefixMatches matches;
  for (auto _ : state) {
    const std::size_t which = rng.below(chats.size());
    Chain& chat = chats[which];
    if (chat.size() > 500) chat.resize(system.size());
    for (int i = 0; i < 10; ++i) chat.push_back(rng());
    index.match(chat, which, matches);
    index.insert(chat, which, static_cast<ReplicaIndex>(which % kReplicas));
  }
  state.counters["blocks"] = static_cast<double>(index.blocks());
  state.counters["MiB"] = static_cast<double>(index.bytes()) / (1 << 20);
}
BENCHMARK(BM_PrefixTurn)->Arg(256)->Arg(8);

// The worst that clients can make: every block of the prompt is a branching point.
void BM_PrefixEveryBlockBranches(benchmark::State& state) {
  PrefixIndex index({});
  Rng rng(6);
  const Chain prompt = random_chain(rng, kPromptBlocks);
  for (std::size_t length = prompt.size(); length > 0; --length) {
    for (ReplicaIndex replica = 0; replica < 8; ++replica) {
      index.insert({prompt.data(), length}, 1, replica);
    }
  }
  PrefixMatches matches;
  for (auto _ : state) {
    index.match(prompt, 7, matches);
    benchmark::DoNotOptimize(matches.holders.data());
  }
}
BENCHMARK(BM_PrefixEveryBlockBranches);

}  // namespace
}  // namespace pointsman
