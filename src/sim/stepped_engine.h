#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "sim/chance.h"
#include "sim/engine_model.h"

namespace pointsman::sim {

struct ChainRun {
  std::uint64_t id = 0;
  std::uint32_t blocks = 0;
};

class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void first_token(RequestId request, TimePoint at, std::uint32_t cached_tokens) = 0;
  virtual void finished(RequestId request, TimePoint at) = 0;
};

// An engine model in virtual time, step by step.
class SteppedEngine {
 public:
  explicit SteppedEngine(const EngineConfig& config) : config_(config), model_(config) {}

  [[nodiscard]] bool fits(std::uint64_t prompt, std::uint64_t output) const {
    return model_.fits(prompt, output);
  }
  void submit(RequestId id, std::uint32_t prompt, std::uint32_t output,
              std::span<const ChainRun> runs, TimePoint now) {
    EngineRequest request{id, prompt, output, {}};
    for (const ChainRun& run : runs) {
      for (std::uint32_t i = 0; i < run.blocks; ++i) {
        request.chain.push_back(mixed(run.id + (std::uint64_t{i} << 40)) | 1);
      }
    }
    model_.submit(std::move(request));
    if (!step_end_) begin(now);
  }
  void advance(TimePoint until, EngineSink& sink) {
    while (step_end_ && *step_end_ <= until) {
      const TimePoint at = *step_end_;
      step_end_.reset();
      events_ = model_.finish_step();
      begin(at);
      for (const EngineEvent& event : events_) {
        if (event.kind == EngineEventKind::kFinished) {
          sink.finished(event.request, at);
        } else if (event.token == 0) {
          sink.first_token(event.request, at, event.cached);
        }
      }
    }
  }
  [[nodiscard]] std::optional<TimePoint> next_event() const { return step_end_; }
  [[nodiscard]] EngineState state() const { return model_.state(); }
  [[nodiscard]] std::size_t cached_blocks(std::span<const ChainRun> runs) const {
    std::vector<BlockHash> chain;
    for (const ChainRun& run : runs) {
      for (std::uint32_t i = 0; i < run.blocks; ++i) {
        chain.push_back(mixed(run.id + (std::uint64_t{i} << 40)) | 1);
      }
    }
    return model_.kv().cached_prefix(chain);
  }
  void slow_down(double factor) { factor_ = factor; }
  void clear() {
    model_ = EngineModel(config_);
    step_end_.reset();
  }
  [[nodiscard]] std::size_t referenced() const { return model_.kv().referenced(); }

 private:
  void begin(TimePoint now) {
    if (const std::optional<Duration> took = model_.begin_step()) {
      step_end_ = now + from_seconds(to_seconds(*took) * factor_);
    }
  }

  EngineConfig config_;
  EngineModel model_;
  std::optional<TimePoint> step_end_;
  std::vector<EngineEvent> events_;
  double factor_ = 1;
};

}  // namespace pointsman::sim
