#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "net/reactor.h"
#include "net/run_on.h"
#include "replica/replica.h"

namespace pointsman::test {

// A simulated replica on port 0 of loopback, on a thread of its own.
class ServedReplica {
 public:
  explicit ServedReplica(ReplicaOptions options = fast_options()) {
    on_thread([&] {
      replica_ = std::make_unique<Replica>(thread_.reactor(), std::move(options));
      const Result<void> listening = replica_->listen("127.0.0.1", 0);
      EXPECT_TRUE(listening.ok());
      port_ = replica_->port();
    });
  }
  ~ServedReplica() {
    thread_.join();
    replica_.reset();
  }
  ServedReplica(const ServedReplica&) = delete;
  ServedReplica& operator=(const ServedReplica&) = delete;

  // A step takes about 0.1 ms.
  static ReplicaOptions fast_options() {
    ReplicaOptions options;
    options.speed = 100;
    return options;
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port()); }

  // Runs `task(replica)` on the replica's thread and returns what it returns.
  template <typename Task>
  auto with(Task&& task) {
    return on_thread([&] { return task(*replica_); });
  }
  void add_fault(Fault fault) {
    with([&](Replica& replica) { replica.add_fault(std::move(fault)); });
  }
  ReplicaStats stats() {
    return with([](Replica& replica) { return replica.stats(); });
  }

 private:
  template <typename Task>
  auto on_thread(Task&& task) -> decltype(task()) {
    return run_on(thread_.reactor(), std::forward<Task>(task));
  }

  ReactorThread thread_;
  std::unique_ptr<Replica> replica_;
  std::uint16_t port_ = 0;
};

}  // namespace pointsman::test
