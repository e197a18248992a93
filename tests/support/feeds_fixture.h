#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "http/url.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "net/run_on.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"
#include "support/served.h"

namespace pointsman::test {

// A fleet and a router, with a housekeeping thread that feeds run on.
class FeedsFixture : public ::testing::Test {
 protected:
  // A replica at that port of loopback.
  ReplicaIndex add(std::uint16_t port, const std::function<void(ReplicaSpec&)>& change = {}) {
    ReplicaSpec spec;
    spec.host = "127.0.0.1";
    spec.port = port;
    spec.authority = authority_of(spec.host, port);
    spec.url = "http://" + spec.authority;
    if (change) change(spec);
    const Result<ReplicaIndex> added = fleet_.add(spec);
    EXPECT_TRUE(added.ok());
    return *added;
  }

  // Runs `task` on the housekeeping thread and waits for it.
  template <typename Task>
  auto on_thread(Task&& task) -> decltype(task()) {
    return run_on(thread_.reactor(), std::forward<Task>(task));
  }

  // Looks again and again, for ten seconds at most.
  template <typename Condition>
  static bool eventually(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  bool eventually_usable(ReplicaIndex replica) {
    return eventually([&] { return fleet_.status(replica)->usable; });
  }

  Signals signals(ReplicaIndex replica) {
    return router_.with([&](Router& router) { return router.signals(replica); });
  }

  Fleet fleet_{{{"general", PoolPurpose::kGeneral}}, HealthOptions{}, Reactor::steady_clock()};
  SharedRouter router_{Router::Options{}, {}};
  ReactorThread thread_;
  Resolver resolver_;
};

}  // namespace pointsman::test
