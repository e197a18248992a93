#include <fstream>
#include <iterator>
#include <string>

#include <benchmark/benchmark.h>

#include "signals/engine_metrics.h"

namespace pointsman {
namespace {

// vLLM's page under load as captured, 61,826 bytes. Aim: at most 40 µs.
void BM_ReadVllmMetricsPage(benchmark::State& state) {
  std::ifstream file(POINTSMAN_TEST_DATA "/signals/vllm-under-load.prom", std::ios::binary);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  if (page.size() < 60'000) {
    state.SkipWithError("the page is missing");
    return;
  }
  const EngineMetrics metrics;
  for (auto _ : state) benchmark::DoNotOptimize(metrics.read(page));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * page.size()));
}
BENCHMARK(BM_ReadVllmMetricsPage);

}  // namespace
}  // namespace pointsman
