#pragma once

#include <atomic>
#include <memory>

#include "base/time.h"
#include "core/replica.h"

namespace pointsman {

// When each replica last answered a request to the end. Written by every data thread with one
// relaxed store; read when a retry has to be judged. Thread-safe.
class RecentCompletions {
 public:
  RecentCompletions() : at_(std::make_unique<std::atomic<Duration::rep>[]>(kMaxReplicas)) {}

  void completed(ReplicaIndex replica, TimePoint now) {
    if (replica >= kMaxReplicas) return;
    at_[replica].store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  // TimePoint{}: not yet.
  [[nodiscard]] TimePoint last(ReplicaIndex replica) const {
    if (replica >= kMaxReplicas) return {};
    return TimePoint(Duration(at_[replica].load(std::memory_order_relaxed)));
  }
  // The replica's place is given to another one.
  void forget(ReplicaIndex replica) { completed(replica, TimePoint{}); }

 private:
  std::unique_ptr<std::atomic<Duration::rep>[]> at_;
};

}  // namespace pointsman
