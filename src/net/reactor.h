#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "base/time.h"
#include "net/asio.h"
#include "net/poller.h"
#include "net/timer_wheel.h"

namespace pointsman {

// One thread's event loop: sockets, time-outs and work posted from other threads.
//
// Everything that belongs to a reactor (connections, timers, exchanges) is created, used and
// destroyed on its thread, or before run() starts, or after run() has returned. Only post() and
// stop() may be called from other threads.
class Reactor {
 public:
  explicit Reactor(const Clock& clock = steady_clock());
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Serves until stop(). The calling thread becomes the reactor's thread.
  void run();

  // Does what is due by the clock and what is ready, without waiting, and returns: for tests that
  // hold the clock. The calling thread is the reactor's thread; never beside run().
  void run_ready();

  // Makes run() return after the handler that is running. Work not yet done stays undone. Sticky: a
  // run() that comes later returns at once.
  void stop();

  // Runs `task` on the reactor's thread, in the order of the calls. Thread-safe.
  template <typename Task>
  void post(Task&& task) {
    asio::post(io_, std::forward<Task>(task));
    if (poller_) notice_post();
  }

  [[nodiscard]] asio::io_context& io() { return io_; }

  // Descriptors watched without Asio, as the data plane does. A reactor that is asked for it before
  // run() waits in the poller: posted tasks still run at once, but what waits in io() is looked at
  // only once a tick.
  [[nodiscard]] Poller& poller() {
    if (!poller_) poller_ = std::make_unique<Poller>();
    return *poller_;
  }
  [[nodiscard]] TimerWheel& timers() { return wheel_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

  // Reads the clock (about 25 ns).
  [[nodiscard]] TimePoint now() const { return clock_.now(); }

  // The time at the last tick of the wheel: up to 50 ms old, and free.
  [[nodiscard]] TimePoint coarse_now() const { return coarse_now_; }

  // Arms `timer` to expire `delay` from now. Short for timers().arm().
  void arm(Timer& timer, Duration delay) { wheel_.arm(timer, delay); }

  // The machine's clock, shared by all reactors.
  static const Clock& steady_clock();

 private:
  void start_tick();
  void tick();
  void run_poller();
  void notice_post();

  const Clock& clock_;
  TimePoint coarse_now_;
  // Outlive what waits in io_: handlers own connections, and these own timers and sockets.
  TimerWheel wheel_;
  std::unique_ptr<Poller> poller_;
  std::atomic<bool> posted_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<std::thread::id> runs_on_{};  // of run_poller()
  asio::io_context io_{1};                  // the hint: one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer tick_timer_;
};

// A reactor on a thread of its own. The destructor stops it and waits for it.
class ReactorThread {
 public:
  ReactorThread() : thread_([this] { reactor_.run(); }) {}
  ~ReactorThread() { join(); }
  ReactorThread(const ReactorThread&) = delete;
  ReactorThread& operator=(const ReactorThread&) = delete;

  [[nodiscard]] Reactor& reactor() { return reactor_; }

  // Stops the loop and waits. After it, what belongs to the reactor may be destroyed here.
  void join() {
    reactor_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  Reactor reactor_;
  std::thread thread_;
};

}  // namespace pointsman
