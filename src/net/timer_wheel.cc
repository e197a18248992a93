#include "net/timer_wheel.h"

#include <algorithm>

namespace pointsman {

TimerWheel::~TimerWheel() {
  for (Link& slot : slots_) {
    while (slot.linked()) slot.next->unlink();
  }
}

void TimerWheel::arm_at(Timer& timer, TimePoint when) {
  const Duration since_start = when.time_since_epoch();
  std::int64_t due = since_start / kTick;
  if (since_start % kTick > Duration::zero()) ++due;
  timer.due_tick_ = std::max(due, tick_ + 1);
  if (timer.linked() && timer.linked_tick_ <= timer.due_tick_) return;
  link(timer);
}

void TimerWheel::link(Timer& timer) {
  if (timer.linked()) timer.unlink();
  timer.linked_tick_ = std::min(timer.due_tick_, tick_ + kSlots - 1);
  slots_[static_cast<std::size_t>(timer.linked_tick_ % kSlots)].push_back(timer);
}

void TimerWheel::advance() {
  const std::int64_t from = tick_;
  const std::int64_t to = tick_of(clock_.now());
  if (to <= from) return;
  // After a long pause of the process each slot is visited once, not once per missed tick.
  tick_ = to;
  const std::int64_t last = std::min(to, from + kSlots);
  for (std::int64_t tick = from + 1; tick <= last; ++tick) {
    visit(slots_[static_cast<std::size_t>(tick % kSlots)]);
  }
}

void TimerWheel::visit(Link& slot) {
  if (!slot.linked()) return;
  // Moved to a list of its own first: a callback may put timers into this very slot, a turn ahead.
  Link due;
  due.next = slot.next;
  due.previous = slot.previous;
  due.next->previous = &due;
  due.previous->next = &due;
  slot.next = slot.previous = &slot;
  while (due.linked()) {
    Timer& timer = static_cast<Timer&>(*due.next);
    timer.unlink();
    if (timer.due_tick_ > tick_) {
      link(timer);
      continue;
    }
    timer.on_expire_();
  }
}

}  // namespace pointsman
