#include "net/reactor.h"

namespace pointsman {

Reactor::Reactor(const Clock& clock)
    : clock_(clock),
      coarse_now_(clock.now()),
      wheel_(clock),
      work_(asio::make_work_guard(io_)),
      tick_timer_(io_) {
  start_tick();
}

Reactor::~Reactor() = default;

void Reactor::run() {
  io_.run();
}

void Reactor::stop() {
  io_.stop();
}

const Clock& Reactor::steady_clock() {
  static const SteadyClock clock;
  return clock;
}

void Reactor::start_tick() {
  tick_timer_.expires_after(TimerWheel::kTick);
  tick_timer_.async_wait([this](std::error_code error) {
    if (error) return;
    coarse_now_ = clock_.now();
    wheel_.advance();
    start_tick();
  });
}

}  // namespace pointsman
