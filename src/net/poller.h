#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include <sys/epoll.h>

#include "base/intrusive.h"

namespace pointsman {

// Readiness of many descriptors by epoll, registered once and edge-triggered: a connection that
// serves ten thousand events is never registered again, where Asio's way costs one more system call
// for each wait (docs/decisions/0004-sockets-by-epoll.md).
//
// For one thread, except wake(). Sources are told of what happens, and may remove themselves or any
// other source meanwhile.
class Poller {
 public:
  class Source : public ListLink<Source> {
   public:
    // `events` as epoll gives them; 0 where the source asked for this turn by soon().
    virtual void on_ready(std::uint32_t events) = 0;

   protected:
    ~Source() = default;
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Watches for `events` until the descriptor is closed; call remove() just before that.
  std::error_code add(int descriptor, std::uint32_t events, Source& source);
  void remove(Source& source);

  // Calls on_ready(0) in the next round: for a source that has work left and will hear of no edge.
  void soon(Source& source) { soon_.push_back(source); }

  // Waits for at most so long and tells the sources. Less than a millisecond of wait is rounded up.
  void wait(std::int64_t milliseconds);

  // Counts the calls of wait().
  [[nodiscard]] std::uint64_t round() const { return round_; }

  // Ends a wait, now or the next one. Thread-safe.
  void wake();

 private:
  using Sources = IntrusiveList<Source, Source>;

  int epoll_;
  int wakeup_;
  Sources soon_;
  Sources turn_;  // of soon_, being told
  std::array<epoll_event, 256> events_{};
  int told_ = 0;  // of events_, the one being told
  int count_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace pointsman
