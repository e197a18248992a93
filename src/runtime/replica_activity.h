#pragma once

#include <atomic>
#include <memory>

#include "base/time.h"
#include "core/replica.h"

namespace pointsman {

// When each replica last showed that it works, as requests saw it. Written by every data thread
// with one relaxed store, read by whoever has to judge: the prober (a probe that times out while
// bytes come is no failure) and the retry rules. Thread-safe.
class ReplicaActivity {
 public:
  ReplicaActivity() : entries_(std::make_unique<Entry[]>(kMaxReplicas)) {}

  // The replica delivered a byte of an answer. A coarse time is good enough.
  void delivered(ReplicaIndex replica, TimePoint now) { store(&Entry::delivered, replica, now); }
  // The replica answered a request to the end.
  void completed(ReplicaIndex replica, TimePoint now) { store(&Entry::completed, replica, now); }

  // TimePoint{}: not yet.
  [[nodiscard]] TimePoint last_delivered(ReplicaIndex replica) const {
    return load(&Entry::delivered, replica);
  }
  [[nodiscard]] TimePoint last_completed(ReplicaIndex replica) const {
    return load(&Entry::completed, replica);
  }

  // The replica's place is given to another one.
  void forget(ReplicaIndex replica) {
    store(&Entry::delivered, replica, TimePoint{});
    store(&Entry::completed, replica, TimePoint{});
  }

 private:
  using Moment = std::atomic<Duration::rep>;
  struct Entry {
    Moment delivered{0};
    Moment completed{0};
  };

  void store(Moment Entry::* moment, ReplicaIndex replica, TimePoint at) {
    if (replica >= kMaxReplicas) return;
    (entries_[replica].*moment).store(at.time_since_epoch().count(), std::memory_order_relaxed);
  }
  [[nodiscard]] TimePoint load(Moment Entry::* moment, ReplicaIndex replica) const {
    if (replica >= kMaxReplicas) return {};
    return TimePoint(Duration((entries_[replica].*moment).load(std::memory_order_relaxed)));
  }

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace pointsman
