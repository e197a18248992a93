#include "replica/engine_driver.h"

#include <cassert>
#include <utility>

namespace pointsman {

EngineDriver::EngineDriver(asio::io_context& io, const sim::EngineConfig& config, double speed,
                           OnEvent on_event)
    : engine_(config), speed_(speed), on_event_(std::move(on_event)), timer_(io) {
  assert(speed > 0);
}

void EngineDriver::watch_cache(OnCache on_cache) {
  engine_.note_kv_changes();
  on_cache_ = std::move(on_cache);
}

void EngineDriver::submit(const sim::EngineRequest& request) {
  engine_.submit(request);
  wake();
}

bool EngineDriver::cancel(sim::RequestId id) {
  const bool cancelled = engine_.cancel(id);
  // A step under way tells when it ends. Of one to come nobody knows when: the engine may be
  // paused.
  if (on_cache_ && !engine_.in_step() && !reporting_) on_cache_(engine_.take_kv_changes());
  return cancelled;
}

void EngineDriver::pause(bool paused) {
  paused_ = paused;
  if (!paused) wake();
}

void EngineDriver::wake() {
  if (!engine_.in_step() && !reporting_) begin(std::chrono::steady_clock::now());
}

void EngineDriver::begin(SteadyTime at) {
  if (paused_) return;
  const std::optional<sim::EngineTime> took = engine_.begin_step();
  if (!took) return;
  step_end_ = at + from_seconds(sim::seconds_of(*took) / speed_);
  timer_.expires_at(step_end_);
  timer_.async_wait([this, alive = std::weak_ptr<bool>(alive_)](std::error_code error) {
    if (!error && !alive.expired()) finish();
  });
}

void EngineDriver::finish() {
  late_ += std::chrono::steady_clock::now() - step_end_;
  ++steps_;
  reporting_ = true;
  const std::vector<sim::EngineEvent>& events = engine_.finish_step();
  if (on_cache_) on_cache_(engine_.take_kv_changes());
  for (const sim::EngineEvent& event : events) on_event_(event);
  reporting_ = false;
  begin(step_end_);
}

}  // namespace pointsman
