#include <string>

#include <benchmark/benchmark.h>

#include "features/answer_reader.h"
#include "features/chat_request.h"

namespace pointsman {
namespace {

// A chat of about `bytes` bytes in 21 messages, or one message where it is short.
std::string chat_body(std::size_t bytes) {
  const int messages = bytes > 10'000 ? 21 : 1;
  std::string body = R"({"messages":[)";
  const std::string word = "the quick brown fox jumps over the lazy dog, ";
  for (int m = 0; m < messages; ++m) {
    if (m > 0) body += ',';
    body += m % 2 == 0 ? R"({"role":"user","content":")" : R"({"role":"assistant","content":")";
    for (std::size_t size = 0; size < bytes / static_cast<std::size_t>(messages);) {
      body += word;
      size += word.size();
      if (size / 200 != (size - word.size()) / 200) body += "\\n";
    }
    body += "\"}";
  }
  return body + R"(],"model":"m1","stream":true,"max_tokens":256})";
}

void read_body(benchmark::State& state, Needs needs) {
  std::string body = chat_body(static_cast<std::size_t>(state.range(0)));
  body.reserve(body.size() + ChatRequestReader::kPadding);
  ChatRequestReader reader({});
  RequestFacts facts;
  for (auto _ : state) {
    reader.read(Api::kChat, body, body.capacity(), "", needs, facts);
    benchmark::DoNotOptimize(facts.prompt_tokens);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}

void BM_ReadRequestBasics(benchmark::State& state) {
  read_body(state, {});
}
BENCHMARK(BM_ReadRequestBasics)->Arg(1 << 10)->Arg(100 << 10);

void BM_ReadRequestWithBlocksAndSession(benchmark::State& state) {
  read_body(state, {.blocks = true, .session = true});
}
BENCHMARK(BM_ReadRequestWithBlocksAndSession)->Arg(1 << 10)->Arg(100 << 10);

void BM_ReadTokenIdPrompt(benchmark::State& state) {
  std::string body = R"({"model":"m1","prompt":[1)";
  for (int i = 1; i < 25'000; ++i) body += "," + std::to_string(i * 7919 % 150'000);
  body += "]}";
  body.reserve(body.size() + ChatRequestReader::kPadding);
  ChatRequestReader reader({});
  RequestFacts facts;
  for (auto _ : state) {
    reader.read(Api::kCompletions, body, body.capacity(), "", {.blocks = true, .session = true},
                facts);
    benchmark::DoNotOptimize(facts.blocks.data());
  }
}
BENCHMARK(BM_ReadTokenIdPrompt);

constexpr std::string_view kEvent =
    R"({"id":"chatcmpl-8ea013b3d05f12a4","object":"chat.completion.chunk","created":1795962265,)"
    R"("model":"tiny","choices":[{"index":0,"delta":{"content":"array"},"logprobs":null,)"
    R"("finish_reason":null,"token_ids":null}]})";

void BM_ReadFirstEvent(benchmark::State& state) {
  AnswerReader reader;
  for (auto _ : state) {
    AnswerFacts facts;
    reader.event(Api::kChat, "", kEvent, facts);
    benchmark::DoNotOptimize(facts.first_token);
  }
}
BENCHMARK(BM_ReadFirstEvent);

void BM_ReadLaterEvent(benchmark::State& state) {
  AnswerReader reader;
  AnswerFacts facts;
  facts.first_token = true;
  for (auto _ : state) {
    reader.event(Api::kChat, "", kEvent, facts);
    benchmark::DoNotOptimize(facts.prompt_tokens);
  }
}
BENCHMARK(BM_ReadLaterEvent);

void BM_ReadUsageEvent(benchmark::State& state) {
  AnswerReader reader;
  AnswerFacts facts;
  facts.first_token = true;
  for (auto _ : state) {
    reader.event(Api::kChat, "",
                 R"({"id":"chatcmpl-9cbd5ba6b54f75ed","object":"chat.completion.chunk",)"
                 R"("choices":[],"usage":{"prompt_tokens":20,"total_tokens":26,)"
                 R"("completion_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}})",
                 facts);
    benchmark::DoNotOptimize(facts.prompt_tokens);
  }
}
BENCHMARK(BM_ReadUsageEvent);

}  // namespace
}  // namespace pointsman
