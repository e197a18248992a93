// Plays a script of requests to the simulator's engine, for comparison with another implementation.
//
// Standard input, one command a line, in the order of time; times in nanoseconds:
//
//   engine BLOCKS BATCHED_TOKENS SEQS T0 TW TC TKV TSEQ RA   (seconds; first and once)
//   submit TIME ID PROMPT OUTPUT [RUN:BLOCKS]...
//   cancel TIME ID
//   crash TIME
//   slow TIME FACTOR
//   read TIME
//
// Standard output, one line for each first token (`first ID TIME CACHED_TOKENS`), end
// (`end ID TIME`) and `read` (`state TIME RUNNING WAITING REFERENCED_BLOCKS PREEMPTIONS STEPS
// GENERATED QUERIES HITS BUSY_PICOSECONDS`).

#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/virtual_engine.h"

namespace pointsman::sim {
namespace {

std::optional<VirtualEngine> make_engine(std::istream& words) {
  EngineConfig config;
  words >> config.blocks >> config.max_num_batched_tokens >> config.max_num_seqs >> config.step_s >>
      config.weights_s >> config.token_s >> config.context_s >> config.sequence_s >>
      config.attention_ratio;
  return VirtualEngine(config);
}

void submit(VirtualEngine& engine, std::istream& words, TimePoint now) {
  EngineRequest request;
  words >> request.id >> request.prompt_tokens >> request.output_tokens;
  std::vector<ChainRun> chain;
  ChainRun run;
  char colon = 0;
  while (words >> run.id >> colon >> run.blocks) chain.push_back(run);
  request.chain = chain;
  engine.submit(request, now);
}

void report(VirtualEngine& engine, TimePoint now) {
  for (const EngineReport& one : engine.advance(now)) {
    const auto at = one.at.time_since_epoch().count();
    if (one.kind == EngineReportKind::kFirstToken) {
      std::cout << "first " << one.request << ' ' << at << ' ' << one.cached << '\n';
    } else {
      std::cout << "end " << one.request << ' ' << at << '\n';
    }
  }
}

void read(const VirtualEngine& engine, TimePoint now) {
  const EngineState state = engine.state(now);
  const double blocks = engine.engine().kv().block_count();
  std::cout << "state " << now.time_since_epoch().count() << ' ' << state.running << ' '
            << state.waiting << ' ' << std::llround(state.kv_usage * blocks) << ' '
            << state.preemptions << ' ' << state.steps << ' ' << state.generated_tokens << ' '
            << state.prefix_queries << ' ' << state.prefix_hits << ' '
            << static_cast<std::int64_t>(state.busy.count()) << '\n';
}

int play() {
  std::optional<VirtualEngine> engine;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "engine") {
      engine = make_engine(words);
      continue;
    }
    if (!engine) return 2;
    std::int64_t time = 0;
    words >> time;
    const TimePoint now{Duration(time)};
    report(*engine, now);
    RequestId id = 0;
    double factor = 1;
    if (command == "submit") {
      submit(*engine, words, now);
    } else if (command == "cancel" && words >> id) {
      engine->cancel(id, now);
    } else if (command == "crash") {
      engine->clear(now);
    } else if (command == "slow" && words >> factor) {
      engine->slow_down(factor, now);
    } else if (command == "read") {
      read(*engine, now);
    } else {
      std::cerr << "what is this: " << line << '\n';
      return 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace pointsman::sim

int main() {
  return pointsman::sim::play();
}
