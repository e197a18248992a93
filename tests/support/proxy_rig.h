#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fake_replica.h"
#include "policies/register.h"
#include "proxy/proxy_server.h"
#include "raw_client.h"

namespace pointsman::test {

// A data plane in this process, before replicas that the test plays.
class ProxyRig {
 public:
  explicit ProxyRig(ProxyOptions options = {}, const std::string& policy = "round_robin")
      : options_(std::move(options)) {
    options_.listen_address = "127.0.0.1";
    options_.listen_port = 0;
    const Registry registry = make_registry();
    PolicySpec spec;
    spec.preset = policy;
    Result<std::unique_ptr<Pipeline>> pipeline = registry.build(spec);
    EXPECT_TRUE(pipeline.ok());
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    pipelines.push_back(std::move(*pipeline));
    router_ = std::make_unique<SharedRouter>(Router::Options{}, std::move(pipelines));
    metrics_ = std::make_unique<ProxyMetrics>(options_.threads);
  }
  ~ProxyRig() { server_.reset(); }

  // A replica that is ready. Before or after start().
  ReplicaIndex add(std::uint16_t port, std::shared_ptr<const TlsClient> tls_client = nullptr) {
    ReplicaSpec spec;
    spec.tls = std::move(tls_client);
    spec.tls_name = "127.0.0.1";
    spec.url = "http://127.0.0.1:" + std::to_string(port);
    spec.host = "127.0.0.1";
    spec.port = port;
    spec.authority = "127.0.0.1:" + std::to_string(port);
    const Result<ReplicaIndex> added = fleet_.add(spec);
    EXPECT_TRUE(added.ok());
    fleet_.probe_result(*added, {ProbeResult::Kind::kReady, ""});
    return *added;
  }

  void start() {
    server_ =
        std::make_unique<ProxyServer>(options_, ProxyDependencies{.fleet = fleet_,
                                                                  .router = *router_,
                                                                  .activity = activity_,
                                                                  .resolver = resolver_,
                                                                  .metrics = *metrics_,
                                                                  .tls = tls,
                                                                  .access_log = nullptr,
                                                                  .decision_log = decision_log,
                                                                  .keys = keys,
                                                                  .append_models = append_models,
                                                                  .refresh_models = refresh_models,
                                                                  .orca_report = orca_report,
                                                                  .models = models});
    const Result<void> bound = server_->bind();
    ASSERT_TRUE(bound.ok()) << bound.error().message;
    const Result<void> started = server_->start();
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  void stop() { server_.reset(); }

  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  [[nodiscard]] ProxyServer& server() { return *server_; }
  [[nodiscard]] Fleet& fleet() { return fleet_; }
  [[nodiscard]] ProxyOptions& options() { return options_; }

  [[nodiscard]] std::int32_t in_flight(ReplicaIndex replica) {
    return router_->with([&](Router& router) { return router.ledger()[replica].in_flight; });
  }
  // Of those, the ones without a first token.
  [[nodiscard]] std::int32_t awaiting_first_token(ReplicaIndex replica) {
    return router_->with([&](Router& router) { return router.ledger()[replica].awaiting; });
  }
  template <typename Read>
  [[nodiscard]] auto sum(Read&& read) {
    auto total = read(metrics_->shard(0));
    for (std::size_t i = 1; i < options_.threads; ++i) total += read(metrics_->shard(i));
    return total;
  }
  // How many errors of that word the router has answered with.
  [[nodiscard]] std::uint64_t own_errors(std::string_view word) {
    return sum([word](auto& shard) {
      std::uint64_t count = 0;
      shard.own_errors.for_each([&](std::string_view one, std::uint64_t n) {
        if (one == word) count += n;
      });
      return count;
    });
  }
  // Waits until it holds; at most ten seconds.
  [[nodiscard]] static bool eventually(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  TlsServer* tls = nullptr;
  PromptModels* models = nullptr;
  KeyTable* keys = nullptr;             // to be set before start()
  DecisionLog* decision_log = nullptr;  // to be set before start()
  std::function<void(std::string& out)> append_models;
  std::function<void(Reactor& reactor, std::function<void()> done)> refresh_models;
  std::function<void(ReplicaIndex replica, std::string_view value)> orca_report;

 private:
  ProxyOptions options_;
  Fleet fleet_{{{"general", PoolPurpose::kGeneral}}, HealthOptions{}, Reactor::steady_clock()};
  ReplicaActivity activity_;
  Resolver resolver_;
  std::unique_ptr<SharedRouter> router_;
  std::unique_ptr<ProxyMetrics> metrics_;
  std::unique_ptr<ProxyServer> server_;
};

// Bodies of a plain and of a streamed request, and the event of a token.
inline constexpr char kChat[] = R"({"model":"m1","messages":[{"role":"user","content":"hi"}]})";
inline constexpr char kStream[] =
    R"({"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]})";
inline constexpr char kToken[] = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: router.test\r\n" + std::string(headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}
inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: router.test\r\n" + std::string(headers) +
         "\r\n";
}

}  // namespace pointsman::test
