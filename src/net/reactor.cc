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
  if (poller_) return run_poller();
  io_.run();
}

void Reactor::run_poller() {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  runs_on_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  // Ticks are counted here: Asio's timer would tick a second time, for three system calls each.
  tick_timer_.cancel();
  steady_clock::time_point next_tick = steady_clock::now();
  while (!stopped_.load(std::memory_order_acquire)) {
    if (posted_.exchange(false, std::memory_order_acq_rel)) io_.poll();
    const steady_clock::time_point now = steady_clock::now();
    if (now >= next_tick) {
      tick();
      io_.poll();
      next_tick = now + TimerWheel::kTick;
    }
    if (stopped_.load(std::memory_order_acquire)) return;
    const bool more = posted_.load(std::memory_order_acquire);
    poller_->wait(more ? 0 : std::chrono::ceil<milliseconds>(next_tick - now).count());
  }
}

void Reactor::run_ready() {
  tick_timer_.cancel();
  tick();
  io_.poll();
  poller().wait(0);
}

void Reactor::notice_post() {
  posted_.store(true, std::memory_order_release);
  if (runs_on_.load(std::memory_order_relaxed) != std::this_thread::get_id()) poller_->wake();
}

void Reactor::stop() {
  stopped_.store(true, std::memory_order_release);
  io_.stop();
  if (poller_) poller_->wake();
}

const Clock& Reactor::steady_clock() {
  static const SteadyClock clock;
  return clock;
}

void Reactor::start_tick() {
  tick_timer_.expires_after(TimerWheel::kTick);
  tick_timer_.async_wait([this](std::error_code error) {
    if (error) return;
    tick();
    start_tick();
  });
}

void Reactor::tick() {
  coarse_now_ = clock_.now();
  wheel_.advance();
}

}  // namespace pointsman
