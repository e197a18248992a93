#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/time.h"

namespace pointsman {

// Time-outs for many connections, at the price of a few pointer writes each.
//
// A hashed wheel (Varghese and Lauck 1987, scheme 6): kSlots lists, one per tick of 50 ms. A timer
// beyond one turn waits in the last slot and is moved on when the wheel reaches it. Setting an
// armed timer to a *later* time only stores that time: the usual "silence" time-out, set anew at
// each byte, touches nothing but the timer itself.
//
// A timer never expires early; it expires up to one tick, and the delay of the loop, late. Timers
// of the same tick expire in no stated order.
//
// Not thread-safe: one wheel per reactor, used on its thread alone. Whoever owns the wheel calls
// advance() once a tick.
class TimerWheel {
  struct Link {
    Link* next = this;
    Link* previous = this;

    Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    [[nodiscard]] bool linked() const { return next != this; }
    void unlink() {
      previous->next = next;
      next->previous = previous;
      next = previous = this;
    }
    void push_back(Link& other) {
      other.previous = previous;
      other.next = this;
      previous->next = &other;
      previous = &other;
    }
  };

 public:
  static constexpr Duration kTick = std::chrono::milliseconds(50);

  // One time-out; lives inside the object that it belongs to. Destroying it disarms it. When it
  // expires it is disarmed first, so that the callback may arm it again or, as its last act,
  // destroy it. Give it a callback that captures one pointer: that takes no memory of its own.
  class Timer : private Link {
   public:
    explicit Timer(std::function<void()> on_expire) : on_expire_(std::move(on_expire)) {}
    ~Timer() { cancel(); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void cancel() {
      if (linked()) unlink();
    }
    [[nodiscard]] bool armed() const { return linked(); }

   private:
    friend class TimerWheel;
    std::function<void()> on_expire_;
    std::int64_t due_tick_ = 0;     // when it expires
    std::int64_t linked_tick_ = 0;  // whose slot it waits in; never after due_tick_
  };

  explicit TimerWheel(const Clock& clock) : clock_(clock), tick_(tick_of(clock.now())) {}
  ~TimerWheel();
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Expires after `delay` from now; an armed timer is moved. A delay of zero or less: next tick.
  void arm(Timer& timer, Duration delay) { arm_at(timer, clock_.now() + delay); }

  // The same for callers that have just read the clock.
  void arm_at(Timer& timer, TimePoint when);

  // Expires what is due at the clock's time. Callbacks may arm, cancel and destroy any timer.
  void advance();

 private:
  static constexpr std::int64_t kSlots = 512;  // one turn: 25.6 s

  static std::int64_t tick_of(TimePoint t) { return t.time_since_epoch() / kTick; }
  void link(Timer& timer);
  void visit(Link& slot);

  const Clock& clock_;
  std::int64_t tick_;  // everything due up to here has expired
  std::array<Link, kSlots> slots_;
};

using Timer = TimerWheel::Timer;

}  // namespace pointsman
