#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/time.h"
#include "net/asio.h"
#include "sim/engine_model.h"

namespace pointsman {

// Runs the engine model by the wall clock: a step that takes 20 ms of engine time ends 20 ms ÷
// speed after it began. Where the machine is late, the next step begins when the last one should
// have ended, so that delays do not add up.
//
// For the io_context's thread.
class EngineDriver {
 public:
  using OnEvent = std::function<void(const sim::EngineEvent&)>;
  using OnCache = std::function<void(std::span<const sim::ChainRun>)>;

  // `speed` > 0: engine seconds per second. `on_event` must not destroy the driver.
  EngineDriver(asio::io_context& io, const sim::EngineConfig& config, double speed,
               OnEvent on_event);

  // After each step, before its events, and where a request is cancelled between steps: what has
  // changed in the KV cache since the last time, as KvModel::take_changes() says it; often nothing.
  // To be called before the first request.
  void watch_cache(OnCache on_cache);

  // The request's first step begins after the one under way.
  void submit(const sim::EngineRequest& request);
  bool cancel(sim::RequestId id);
  // As EngineModel's.
  bool reset_cache() { return engine_.reset_cache(); }

  // A paused engine finishes the step under way and begins no other: requests hang.
  void pause(bool paused);
  [[nodiscard]] bool paused() const { return paused_; }

  [[nodiscard]] const sim::EngineModel& engine() const { return engine_; }
  [[nodiscard]] double speed() const { return speed_; }

  // By how much steps ended later than they should have, in real time: the mean over all steps.
  // More than a millisecond or two says that the machine is too slow for the speed.
  [[nodiscard]] Duration mean_lateness() const {
    return steps_ == 0 ? Duration{} : late_ / static_cast<std::int64_t>(steps_);
  }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void wake();
  void begin(SteadyTime at);
  void finish();

  sim::EngineModel engine_;
  const double speed_;
  const OnEvent on_event_;
  OnCache on_cache_;
  asio::steady_timer timer_;
  SteadyTime step_end_;
  Duration late_{};  // sum over all steps
  std::uint64_t steps_ = 0;
  bool paused_ = false;
  // Events of a step are being reported. The next step begins after them, so that a request that
  // one of them brings in belongs to it.
  bool reporting_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pointsman
