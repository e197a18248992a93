#pragma once

#include <mutex>
#include <utility>

#include "core/router.h"

namespace pointsman {

// The router that all threads share: one lock around the decision core.
//
// Why one lock and not atomics and shards: choice and booking are one step, so two threads can
// never see the same idle replica; the order of decisions is total, so a decision log replays bit
// for bit whatever the number of threads; and the lock is held for about a microsecond of a
// request's twenty or more. Parsing and hashing happen outside. See
// docs/decisions/0002-one-lock.md.
class SharedRouter {
 public:
  SharedRouter(const Router::Options& options, std::vector<std::unique_ptr<Pipeline>> pipelines)
      : router_(options, std::move(pipelines)) {}

  [[nodiscard]] Needs needs() const { return router_.needs(); }  // constant after construction

  // Runs `use(Router&)` under the lock and returns what it returns. Keep it short: no I/O, no
  // logging.
  template <typename Use>
  decltype(auto) with(Use&& use) {
    const std::lock_guard lock(mutex_);
    return std::forward<Use>(use)(router_);
  }

 private:
  std::mutex mutex_;
  Router router_;
};

}  // namespace pointsman
