// What a request costs the router before it is sent, by the length of its prompt: reading it and
// deciding by the default policy or round robin. With blocks of text, with ids of a prompt that was
// never seen, and with ids of a conversation of which only the last turn is new.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/router.h"
#include "features/chat_request.h"
#include "features/loaded_prompt_model.h"
#include "policies/register.h"

namespace pointsman {
namespace {

constexpr ReplicaIndex kReplicas = 8;

// English of a kind: words of a small vocabulary in a random order, so that no two messages of the
// run are alike.
std::string text_of(std::size_t bytes, std::uint64_t seed) {
  static constexpr std::array<std::string_view, 24> kWords = {
      "the",  "quick",  "router", "jumps",  "over",    "a",    "lazy",   "engine",
      "and",  "tokens", "of",     "every",  "request", "are",  "known",  "before",
      "they", "arrive", "in",     "blocks", "which",   "were", "cached", "twice"};
  Rng rng(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[rng() % kWords.size()];
    text += rng() % 9 == 0 ? ". " : " ";
  }
  text.resize(bytes);
  return text;
}

// A conversation of about `bytes`, in turns of 4 KiB and one of 200 bytes at the end. Conversations
// of one seed differ in their last turn alone.
std::string chat_body(std::size_t bytes, std::uint64_t seed, std::uint64_t last_seed) {
  std::string body = R"({"model":"m","messages":[)";
  std::size_t turn = 0;
  for (std::size_t left = bytes; left > 0; ++turn) {
    const std::size_t part = std::min<std::size_t>(left, 4096);
    body += turn % 2 == 0 ? R"({"role":"user","content":")" : R"({"role":"assistant","content":")";
    body += text_of(part, seed * 1000 + turn) + "\"},";
    left -= part;
  }
  body += R"({"role":"user","content":")" + text_of(200, ~last_seed) + "\"}]}";
  return body;
}

enum class Prompts { kText, kCold, kTail };

void request(benchmark::State& state, const std::string& policy, Prompts prompts) {
  const auto bytes = static_cast<std::size_t>(state.range(0)) * 1024;
  std::unique_ptr<PromptModels> models;
  if (prompts != Prompts::kText) {
    // A folder of another model may be named.
    const char* const named = std::getenv("POINTSMAN_BENCH_MODEL");
    const std::string folder = named != nullptr ? named : POINTSMAN_TEST_DATA "/tokens";
    std::string problem;
    auto model = LoadedPromptModel::load(folder, problem);
    if (!model) return state.SkipWithError(model.error().message.c_str());
    std::vector<PromptModels::Entry> entries;
    entries.push_back({.names = {"m"}, .adapters = {}, .model = std::move(*model)});
    models = std::make_unique<PromptModels>(std::move(entries), std::size_t{64} << 20, 1);
  }
  const Registry registry = make_registry();
  PolicySpec spec;
  spec.preset = policy;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(std::move(*registry.build(spec)));
  Router router({}, std::move(pipelines));
  FleetView fleet;
  fleet.pools.emplace_back();
  for (ReplicaIndex i = 0; i < kReplicas; ++i) {
    fleet.replicas.push_back({i + 1, 1.0, 0, true});
    fleet.pools[0].usable.push_back(i);
  }
  ChatRequestReader reader({}, {.models = models.get()});
  std::unique_ptr<PromptTokens> pool;
  if (models) pool = std::make_unique<PromptTokens>(models->cache(), 1, 16);
  // More than the cache of pieces holds, where every prompt is to be new.
  std::vector<std::string> bodies;
  const std::size_t count =
      prompts == Prompts::kCold ? std::max<std::size_t>(4, (64 << 20) / bytes / 2) : 64;
  for (std::size_t i = 0; i < count; ++i) {
    bodies.push_back(chat_body(bytes, prompts == Prompts::kCold ? i + 1 : 1, i));
    bodies.back().append(ChatRequestReader::kPadding, ' ');
  }
  RequestFacts facts;
  TimePoint now = TimePoint{} + std::chrono::seconds(1);
  std::size_t next = 0;
  for (auto _ : state) {
    const std::string& body = bodies[next++ % bodies.size()];
    const std::string_view text =
        std::string_view(body).substr(0, body.size() - ChatRequestReader::kPadding);
    reader.read(Api::kChat, text, body.size(), "", router.needs(), facts);
    if (facts.ids_pending) {
      PromptText prompt = reader.take_pending();
      pool->run(prompt);
      reader.adopt(prompt, Api::kChat, text, body.size(), facts);
    }
    now += std::chrono::milliseconds(1);
    Decision decision = router.decide(facts.features(), fleet, {}, now);
    router.finished(std::move(decision.charge), {}, now);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void BM_RequestRoundRobin(benchmark::State& state) {
  request(state, "round_robin", Prompts::kText);
}
void BM_RequestText(benchmark::State& state) {
  request(state, "least_work", Prompts::kText);
}
void BM_RequestIdsCold(benchmark::State& state) {
  request(state, "least_work", Prompts::kCold);
}
void BM_RequestIdsTail(benchmark::State& state) {
  request(state, "least_work", Prompts::kTail);
}
BENCHMARK(BM_RequestRoundRobin)->Arg(1)->Arg(16)->Arg(128)->Arg(512);
BENCHMARK(BM_RequestText)->Arg(1)->Arg(16)->Arg(128)->Arg(512);
BENCHMARK(BM_RequestIdsCold)->Arg(1)->Arg(16)->Arg(128)->Arg(512);
BENCHMARK(BM_RequestIdsTail)->Arg(1)->Arg(16)->Arg(128)->Arg(512);

}  // namespace
}  // namespace pointsman
