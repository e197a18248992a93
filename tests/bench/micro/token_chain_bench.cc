#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/token_chain.h"

namespace pointsman {
namespace {

// A prompt of 8,192 tokens and its keys at blocks of the argument's size.
void BM_TokenChainBlocks(benchmark::State& state) {
  const TokenChain chain(1);
  std::vector<std::uint32_t> tokens(8'192);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint32_t>(i * 7'919);
  std::vector<BlockHash> blocks;
  for (auto _ : state) {
    blocks.clear();
    benchmark::DoNotOptimize(chain.extend_blocks(
        chain.start("m", ""), 0, tokens, static_cast<std::uint32_t>(state.range(0)), blocks));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tokens.size()));
}
BENCHMARK(BM_TokenChainBlocks)->Arg(1)->Arg(16)->Arg(8'192);

// A token at a time, as for an engine whose blocks have one token.
void BM_TokenChainToken(benchmark::State& state) {
  const TokenChain chain(1);
  BlockHash hash = chain.start("m", "");
  std::uint32_t token = 0;
  for (auto _ : state) benchmark::DoNotOptimize(hash = chain.extend(hash, token++));
}
BENCHMARK(BM_TokenChainToken);

}  // namespace
}  // namespace pointsman
