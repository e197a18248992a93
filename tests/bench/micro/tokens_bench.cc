// What a prompt costs to encode and a chat to render, with the tiny model of tests/data/tokens or
// with the one that POINTSMAN_BENCH_MODEL names:
//
//   POINTSMAN_BENCH_MODEL=/models/qwen3 bench_micro --benchmark_filter='Tokens|Chat'
//
// tests/bench/tokens.py puts the reference library beside it.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "support/test_data.h"
#include "tokens/chat_template.h"
#include "tokens/tokenizer.h"

namespace pointsman {
namespace {

std::string model() {
  const char* named = std::getenv("POINTSMAN_BENCH_MODEL");
  return named != nullptr ? named : std::string(POINTSMAN_TEST_DATA) + "/tokens";
}

// English prose: our own documents, over and over.
std::string prose(std::size_t size) {
  std::string text;
  while (text.size() < size) text += test_data("../../docs/life_of_a_request.md");
  text.resize(size);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80U) != 0) text.pop_back();
  return text;
}

void BM_Tokens(benchmark::State& state) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(model());
  if (!tokenizer) return state.SkipWithError(tokenizer.error().message.c_str());
  const std::string text = prose(static_cast<std::size_t>(state.range(0)));
  std::vector<std::uint32_t> ids;
  for (auto _ : state) {
    ids.clear();
    benchmark::DoNotOptimize(tokenizer->encode(text, false, ids).ok());
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(ids.size()),
                                                  benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(BM_Tokens)->Arg(1'000)->Arg(16 << 10)->Arg(100'000)->Arg(512 << 10);

void BM_Chat(benchmark::State& state) {
  const Result<ChatTemplate> chat_template = ChatTemplate::load(model());
  if (!chat_template) return state.SkipWithError(chat_template.error().message.c_str());
  const std::string turn =
      R"({"role": "user", "content": ")" + std::string(1'900, 'x') +
      R"( \n\"quoted\" "}, {"role": "assistant", "content": "yes, 1 KiB more"})";
  std::string messages = "[";
  while (messages.size() < static_cast<std::size_t>(state.range(0))) {
    messages += (messages.size() == 1 ? "" : ",") + turn;
  }
  messages += "]";
  for (auto _ : state) {
    benchmark::DoNotOptimize(chat_template->render({.messages = messages}).ok());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(messages.size()));
}
BENCHMARK(BM_Chat)->Arg(1'000)->Arg(16 << 10)->Arg(128 << 10)->Arg(512 << 10);

}  // namespace
}  // namespace pointsman
