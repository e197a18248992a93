#pragma once

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "net/http_server.h"
#include "net/reactor.h"
#include "net/run_on.h"

namespace pointsman::test {

// An HttpServer on port 0 of loopback, on a thread of its own.
class Served {
 public:
  explicit Served(HttpServer::Handler handler, HttpServer::Options options = {}) {
    on_thread([&] {
      server_ = std::make_unique<HttpServer>(reactor(), std::move(options), std::move(handler));
      const Result<void> listening = server_->listen("127.0.0.1", 0);
      EXPECT_TRUE(listening.ok());
    });
  }
  ~Served() {
    thread_.join();
    server_.reset();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  [[nodiscard]] HttpServer& server() { return *server_; }
  [[nodiscard]] Reactor& reactor() { return thread_.reactor(); }

  // Runs `task` on the server's thread and waits for it.
  template <typename Task>
  auto on_thread(Task&& task) -> decltype(task()) {
    return run_on(reactor(), std::forward<Task>(task));
  }

 private:
  ReactorThread thread_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace pointsman::test
