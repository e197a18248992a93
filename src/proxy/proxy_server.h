#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "access/key_table.h"
#include "base/result.h"
#include "core/replica.h"
#include "features/prompt_models.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "net/tls_context.h"
#include "proxy/proxy_options.h"
#include "runtime/fleet.h"
#include "runtime/replica_activity.h"
#include "runtime/shared_router.h"
#include "telemetry/access_log.h"
#include "telemetry/decision_log.h"
#include "telemetry/proxy_metrics.h"

namespace pointsman {

// What the data plane uses of the rest of the process. All of it outlives the server and is
// thread-safe; `metrics` has a shard for each thread.
struct ProxyDependencies {
  Fleet& fleet;
  SharedRouter& router;
  ReplicaActivity& activity;
  Resolver& resolver;
  ProxyMetrics& metrics;
  TlsServer* tls = nullptr;             // null: the port speaks plain HTTP
  AccessLog* access_log = nullptr;      // null: none
  DecisionLog* decision_log = nullptr;  // null: none
  KeyTable* keys = nullptr;             // of which clients must show one; null: none is asked for

  // Appends the body of GET /v1/models, merged from what the replicas last said. Absent: the path
  // is proxied like any other.
  std::function<void(std::string& out)> append_models;
  // Has the replicas' model lists asked for again, at most once a second, and calls `done` on the
  // reactor when they are in. Absent: an unknown model is refused at once.
  std::function<void(Reactor& reactor, std::function<void()> done)> refresh_models;
  // A replica's `endpoint-load-metrics` response header (ORCA). Absent: not read.
  std::function<void(ReplicaIndex replica, std::string_view value)> orca_report;
  // Whose prompts become token ids. Null: none.
  PromptModels* models = nullptr;
};

class ProxyShared;
class ProxyShard;

// The data plane: one reactor per thread, each with its own listening socket on the same port, its
// own connections and exchanges. What threads share is in ProxyDependencies, and a few atomics.
//
// Life: bind() → start() → drain() → (done) → destruction. May be destroyed at any time; what
// still runs is then cut. All calls come from one thread, unless stated otherwise.
class ProxyServer {
 public:
  ProxyServer(const ProxyOptions& options, const ProxyDependencies& dependencies);
  ~ProxyServer();
  ProxyServer(const ProxyServer&) = delete;
  ProxyServer& operator=(const ProxyServer&) = delete;

  // Takes the port, which still refuses connections: nobody waits for an answer before start().
  // Fails where another program has it.
  Result<void> bind();
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Opens the port and starts the threads.
  Result<void> start();

  // Leaves in peace: unready at once (/health, /readyz); after shutdown_delay no new connections,
  // idle ones closed, answers close theirs; what runs may finish within shutdown_grace and is then
  // cut. `done` is called once, on a data thread, when nothing runs any more.
  void drain(std::function<void()> done);
  // Cuts what runs. After drain(): does not wait any longer.
  void cut();

  // Ends the threads; what still ran is cut by the destruction. In between, what this server uses
  // of the process may go.
  void stop();

  // Whether a request could be served now. Thread-safe.
  [[nodiscard]] bool ready() const;

 private:
  struct Hub;

  std::unique_ptr<ProxyShared> shared_;
  std::shared_ptr<Hub> hub_;
  std::vector<std::unique_ptr<ProxyShard>> shards_;
  std::vector<std::thread> threads_;
  std::uint16_t port_ = 0;
};

}  // namespace pointsman
