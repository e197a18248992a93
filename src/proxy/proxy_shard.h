#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "access/address_range.h"
#include "access/connection_counts.h"
#include "access/key_set.h"
#include "base/intrusive.h"
#include "base/rng.h"
#include "features/chat_request.h"
#include "features/model_estimates.h"
#include "net/listener.h"
#include "net/reactor.h"
#include "net/upstream_pool.h"
#include "proxy/client_connection.h"
#include "proxy/exchange.h"
#include "proxy/input_buffer.h"
#include "proxy/path_table.h"
#include "proxy/proxy_options.h"
#include "proxy/proxy_server.h"
#include "proxy/refused_connections.h"
#include "proxy/request_body.h"
#include "proxy/retry_rules.h"
#include "proxy/tls_arrivals.h"
#include "proxy/token_pool.h"

namespace pointsman {

// What the shards of one server share. Immutable, or atomic.
class ProxyShared {
 public:
  ProxyShared(const ProxyOptions& proxy_options, const ProxyDependencies& dependencies)
      : options(proxy_options),
        deps(dependencies),
        paths(options),
        needs(dependencies.router.needs() | Needs{.blocks = dependencies.decision_log != nullptr,
                                                  .session = dependencies.decision_log != nullptr}),
        estimates(options.bytes_per_token),
        retry_budget(options.retry),
        body_memory(options.limits.body_memory),
        trusted(options.trusted),
        connections({.all = options.limits.connections,
                     .per_client = options.limits.connections_per_client},
                    trusted) {
    if (deps.models != nullptr && !deps.models->empty()) {
      token_pool = std::make_unique<TokenPool>(
          *deps.models, TokenPool::Options{.threads = std::max<std::size_t>(1, options.threads / 4),
                                           .secret = options.chain_secret,
                                           .block_ids = options.block_ids});
    }
  }

  const ProxyOptions options;
  const ProxyDependencies deps;
  const PathTable paths;
  const Needs needs;
  ModelEstimates estimates;
  RetryBudget retry_budget;
  BodyMemory body_memory;
  const AddressRanges trusted;
  ConnectionCounts connections;
  std::unique_ptr<TokenPool> token_pool;  // null: no model has a tokenizer
  std::atomic<bool> draining{false};      // unready
  std::atomic<bool> closing_idle{false};  // no connection is kept for a further request
  std::atomic<std::size_t> shards_busy{0};
  std::function<void()> on_drained;  // set before closing_idle
};

// A replica as a shard needs it: where to send, and what to put into the head.
struct ReplicaTarget {
  std::shared_ptr<const ReplicaSpec> spec;       // null: no such replica
  std::string authorization;                     // empty: the client's is passed on
  std::uint64_t generation = ~std::uint64_t{0};  // of the fleet when it was looked up
  TimePoint tls_failure_told{};
};

// One thread's part of the data plane: its reactor and everything that lives on it.
class ProxyShard {
 public:
  static constexpr std::size_t kReadBuffer = 64 * 1024;

  // Tests hold the clock, and turn the reactor by hand.
  ProxyShard(ProxyShared& shared, std::size_t index, const Clock& clock = Reactor::steady_clock());
  ~ProxyShard();

  // --- for the server, before the thread starts or by reactor().post() ------------------------
  Result<void> bind(std::string_view address, std::uint16_t port);
  Result<void> listen();
  [[nodiscard]] std::uint16_t port() const { return listener_.port(); }
  void start();
  void drain();
  void cut_everything();
  void replica_gone(ReplicaIndex replica);
  void forget_replica(ReplicaIndex replica);

  // --- for connections and exchanges ------------------------------------------------------------
  [[nodiscard]] Reactor& reactor() { return reactor_; }
  [[nodiscard]] const ProxyOptions& options() const { return shared_.options; }
  [[nodiscard]] ProxyShared& shared() { return shared_; }
  [[nodiscard]] const ProxyDependencies& deps() const { return shared_.deps; }
  [[nodiscard]] ProxyMetrics::Shard& metrics() { return metrics_; }
  [[nodiscard]] AccessLog::Writer* access_log() { return access_log_.get(); }
  [[nodiscard]] DecisionLog::Writer* decision_log() { return decision_log_.get(); }
  [[nodiscard]] BlockPool& blocks() { return blocks_; }
  [[nodiscard]] BodyBlocks& body_blocks() { return body_blocks_; }
  [[nodiscard]] UpstreamPool& upstreams() { return upstreams_; }
  [[nodiscard]] ChatRequestReader& request_reader() { return request_reader_; }
  [[nodiscard]] AnswerReader& answer_reader() { return answer_reader_; }
  [[nodiscard]] bool draining() const { return shared_.draining.load(std::memory_order_relaxed); }
  [[nodiscard]] bool closing_idle() const {
    return shared_.closing_idle.load(std::memory_order_relaxed);
  }

  // Arms by the time of the last tick: no clock is read. Zero or less disarms.
  void arm(Timer& timer, Duration limit) {
    if (limit <= Duration::zero()) return timer.cancel();
    reactor_.timers().arm_at(timer, reactor_.coarse_now() + limit + TimerWheel::kTick);
  }

  // The newest view of the fleet; valid until the next call.
  [[nodiscard]] const FleetView& view();
  [[nodiscard]] bool any_usable();
  // Valid until the next call for a replica of a higher index.
  [[nodiscard]] const ReplicaTarget& target(ReplicaIndex replica);
  // TLS with the replica has failed; told in the log now and then.
  void tls_failed(ReplicaIndex replica, const std::error_code& error);
  // Whether a request for the model may be forwarded; looks the name up once per state of the
  // fleet.
  [[nodiscard]] ModelState model_state(std::string_view model);
  [[nodiscard]] std::size_t models_served();

  // The keys that are valid now; null: none is asked for. Valid until the next call.
  [[nodiscard]] const KeySet* keys();

  // One buffer for all reads whose bytes go on at once; valid until the next read.
  [[nodiscard]] char* read_buffer() { return read_buffer_.get(); }
  // Emptied text for building one head; used up before the handler returns.
  [[nodiscard]] std::string& scratch() {
    scratch_.clear();
    return scratch_;
  }
  [[nodiscard]] std::string& body_scratch() { return body_scratch_; }
  // 32 hexadecimal digits; valid until the next call.
  [[nodiscard]] std::string_view next_request_id();
  // A number that was not given before; never 0.
  [[nodiscard]] std::uint64_t next_ticket() { return ++last_ticket_; }

  // Has the ids of a long prompt made and tells the exchange, unless it has dropped the job. False:
  // there is too much to do already.
  [[nodiscard]] bool make_ids(const std::shared_ptr<TokenJob>& job, Exchange& waiter);

  [[nodiscard]] Exchange* take_exchange();
  void give_back_exchange(Exchange* exchange);
  // The exchange is sent to a replica / is no more.
  void exchange_active(Exchange& exchange) { active_.push_back(exchange); }
  void connection_closed(ClientConnection& connection);
  void count_own_answer(int status);

 private:
  void accepted(int socket, const asio::ip::tcp::endpoint& client);
  void serve(StreamPtr stream, const asio::ip::tcp::endpoint& client, ConnectionPlace place);
  void refuse(int socket, ConnectionCounts::Verdict why);
  void tick();
  void flush_logs();
  void leave();
  void check_drained();
  void close_idle_connections();

  ProxyShared& shared_;
  ProxyMetrics::Shard& metrics_;
  std::unique_ptr<AccessLog::Writer> access_log_;
  std::unique_ptr<DecisionLog::Writer> decision_log_;
  Reactor reactor_;
  BlockPool blocks_;
  BodyBlocks body_blocks_;
  std::unique_ptr<char[]> read_buffer_;
  std::string scratch_;
  std::string body_scratch_;
  std::array<char, 32> request_id_{};
  Rng rng_;
  std::uint64_t last_ticket_ = 0;
  ChatRequestReader request_reader_;
  AnswerReader answer_reader_;
  std::shared_ptr<const FleetView> view_;
  bool any_usable_ = false;
  std::deque<ReplicaTarget> targets_;  // by ReplicaIndex
  struct KnownModel {
    std::string name;
    ModelState state = ModelState::kUnknown;
  };
  std::vector<KnownModel> known_models_;  // in the fleet's state of view_
  std::size_t models_served_ = 0;
  bool models_counted_ = false;
  UpstreamPool upstreams_;
  std::vector<std::unique_ptr<Exchange>> spare_exchanges_;
  IntrusiveList<Exchange, Exchange> active_;
  IntrusiveList<ClientConnection, ClientConnection> connections_;  // each holds a reference
  std::size_t connection_count_ = 0;
  RefusedConnections refused_;
  TimePoint last_refusal_told_at_{};
  std::shared_ptr<const KeySet> keys_;
  std::uint64_t keys_generation_ = 0;
  std::size_t upstreams_counted_ = 0;
  bool leaving_ = false;
  bool drained_ = false;
  Timer tick_timer_;
  Timer drain_timer_;
  std::unique_ptr<TlsArrivals> tls_arrivals_;  // null: the port speaks plain HTTP
  Listener listener_;
};

}  // namespace pointsman
