// What the engine costs the simulator: conversations of the reference workloads over eight engines
// in turn, at their reference rates, with the smallest driver that can do it (the draws of the
// workload and the queue of arrivals are part of the time). `steps` counts engine steps a request.

#include <cmath>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "sim/virtual_engine.h"
#include "sim/workload.h"

namespace pointsman::sim {
namespace {

constexpr std::size_t kEngines = 8;

struct Load {
  const char* engine;
  WorkloadSpec workload;
  double requests_per_s;
};

Load set_a() {
  Load load{.engine = "set_a", .workload = {}, .requests_per_s = 18};
  load.workload.first_prompt = {.median = 800, .sigma = 1.2};
  load.workload.follow_up = {.median = 200, .sigma = 1.0};
  load.workload.output = {.median = 250, .sigma = 1.0, .high = 4'000};
  load.workload.turns_sigma = 0.8;
  load.workload.document_share = 0.003;
  load.workload.document_high = 110'000;
  load.workload.long_generation_share = 0.01;
  load.workload.long_generation = {.median = 5'000, .sigma = 0.5, .low = 500, .high = 16'000};
  load.workload.think_s = 15;
  return load;
}

Load ref70() {
  Load load{.engine = "ref70", .workload = {}, .requests_per_s = 7.15};
  load.workload.first_prompt = {.median = 4'000, .sigma = 0.25};
  load.workload.follow_up = {.median = 770, .sigma = 0.7};
  load.workload.output = {.median = 375, .sigma = 1.2, .high = 4'000};
  load.workload.document_share = 0.0038;
  load.workload.document_high = 100'000;
  load.workload.long_generation_share = 0.005;
  load.workload.long_generation = {.median = 5'500, .sigma = 0.5, .low = 500, .high = 16'000};
  load.workload.think_s = 13;
  return load;
}

class Fleet {
 public:
  explicit Fleet(const Load& load)
      : load_(load), engines_(kEngines, VirtualEngine(find_engine_preset(load.engine)->config)) {
    next_start_ += pause(load_.requests_per_s / load_.workload.turns_mean);
  }

  // Handles arrivals and reports until `requests` more have arrived.
  void run(std::size_t requests) {
    while (requests > 0) {
      std::size_t engine = kEngines;
      TimePoint soonest = next_start_;
      if (!turns_.empty()) soonest = std::min(soonest, turns_.top().first);
      for (std::size_t i = 0; i < kEngines; ++i) {
        const std::optional<TimePoint> next = engines_[i].next_event();
        if (next && *next <= soonest) {
          soonest = *next;
          engine = i;
        }
      }
      if (engine < kEngines) {
        handle(engines_[engine], soonest);
        continue;
      }
      --requests;
      if (soonest == next_start_) {
        next_start_ += pause(load_.requests_per_s / load_.workload.turns_mean);
        start(soonest);
      } else {
        const std::size_t conversation = turns_.top().second;
        turns_.pop();
        send(conversation, soonest);
      }
    }
  }

  [[nodiscard]] std::uint64_t steps() const {
    std::uint64_t steps = 0;
    for (const VirtualEngine& engine : engines_) steps += engine.engine().state().steps;
    return steps;
  }

 private:
  struct Talk {
    Conversation turns;
    std::size_t turn = 0;
    std::uint64_t id = 0;
    std::uint32_t context = 0;
  };

  Duration pause(double rate) { return from_seconds(-std::log(1.0 - rng_.unit()) / rate); }

  void start(TimePoint now) {
    std::size_t place = talks_.size();
    if (unused_.empty()) {
      talks_.emplace_back();
    } else {
      place = unused_.back();
      unused_.pop_back();
    }
    ++started_;
    talks_[place] = {make_conversation(load_.workload, 1, started_), 0, started_, 0};
    send(place, now);
  }

  void send(std::size_t place, TimePoint now) {
    Talk& talk = talks_[place];
    const Turn& turn = talk.turns[talk.turn];
    const std::uint32_t prompt = std::min(talk.context + turn.new_tokens, 110'000U);
    talk.context = prompt + turn.output_tokens;
    const ChainRun run{talk.id, talk.context / kBlockTokens};
    VirtualEngine& engine = engines_[turn_++ % kEngines];
    handle(engine, now);
    engine.submit({.id = place,
                   .prompt_tokens = prompt,
                   .output_tokens = turn.output_tokens,
                   .chain = std::span(&run, run.blocks > 0 ? 1 : 0)},
                  now);
  }

  void handle(VirtualEngine& engine, TimePoint now) {
    for (const EngineReport& report : engine.advance(now)) {
      if (report.kind != EngineReportKind::kFinished) continue;
      Talk& talk = talks_[report.request];
      if (++talk.turn < talk.turns.size()) {
        turns_.emplace(report.at + from_seconds(talk.turns[talk.turn].think_s), report.request);
      } else {
        unused_.push_back(report.request);
      }
    }
  }

  Load load_;
  Rng rng_{5};
  std::vector<VirtualEngine> engines_;
  std::vector<Talk> talks_;
  std::vector<std::size_t> unused_;
  using Arrival = std::pair<TimePoint, std::size_t>;
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> turns_;
  TimePoint next_start_{};
  std::uint64_t started_ = 0;
  std::size_t turn_ = 0;
};

void run(benchmark::State& state, const Load& load) {
  constexpr std::size_t kRequests = 10'000;
  Fleet fleet(load);
  fleet.run(kRequests);
  const std::uint64_t before = fleet.steps();
  for (auto _ : state) fleet.run(kRequests);
  const auto requests = static_cast<double>(state.iterations()) * kRequests;
  state.counters["per_request"] =
      benchmark::Counter(requests, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["steps"] = static_cast<double>(fleet.steps() - before) / requests;
}

void BM_VirtualEngineSetA(benchmark::State& state) {
  run(state, set_a());
}
BENCHMARK(BM_VirtualEngineSetA)->Unit(benchmark::kMillisecond);

void BM_VirtualEngineRef70(benchmark::State& state) {
  run(state, ref70());
}
BENCHMARK(BM_VirtualEngineRef70)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pointsman::sim
