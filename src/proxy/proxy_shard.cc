#include "proxy/proxy_shard.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"
#include "http/openai_error.h"
#include "net/socket_stream.h"
#include "net/tls_error.h"
#include "proxy/address_bytes.h"

namespace pointsman {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(500);

// How often what goes on failing is told of again.
constexpr Duration kTellAgain = std::chrono::minutes(1);

// Names from outside are remembered for as long as the fleet's state lasts, so they are bounded.
constexpr std::size_t kKnownModels = 64;
constexpr std::size_t kUsualScratch = std::size_t{1} << 20;
constexpr std::size_t kSpareExchanges = 256;

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

ProxyShard::ProxyShard(ProxyShared& shared, std::size_t index, const Clock& clock)
    : shared_(shared),
      metrics_(shared.deps.metrics.shard(index)),
      access_log_(shared.deps.access_log == nullptr
                      ? nullptr
                      : std::make_unique<AccessLog::Writer>(*shared.deps.access_log)),
      decision_log_(shared.deps.decision_log == nullptr
                        ? nullptr
                        : std::make_unique<DecisionLog::Writer>(*shared.deps.decision_log)),
      reactor_(clock),
      body_blocks_(shared.body_memory, metrics_.held_body_bytes),
      read_buffer_(new char[kReadBuffer]),
      rng_(random_seed()),
      request_reader_({.block_bytes = shared.options.block_bytes,
                       .block_ids = shared.options.block_ids,
                       .bytes_per_token = shared.options.bytes_per_token,
                       .chain_secret = shared.options.chain_secret},
                      {.estimates = &shared.estimates, .models = shared.deps.models}),
      upstreams_(reactor_, {shared.options.timeouts.upstream_idle,
                            shared.options.timeouts.upstream_unacknowledged}),
      tick_timer_([this] { tick(); }),
      drain_timer_([this] { leaving_ ? cut_everything() : leave(); }),
      listener_(reactor_, {}, [this](int socket, const asio::ip::tcp::endpoint& client) {
        accepted(socket, client);
      }) {
  // From here on the reactor waits in its poller.
  static_cast<void>(reactor_.poller());
  if (shared.deps.tls != nullptr) {
    tls_arrivals_ = std::make_unique<TlsArrivals>(
        reactor_, *shared.deps.tls, metrics_,
        TlsArrivals::Options{.limit = shared.options.timeouts.client_head},
        [this](const IntrusivePtr<TlsStream>& stream, const asio::ip::tcp::endpoint& client,
               ConnectionPlace place) {
          serve(StreamPtr(stream.get()), client, std::move(place));
        });
  }
}

ProxyShard::~ProxyShard() {
  // The thread has ended: what still runs ends here, while everything that it uses is there.
  cut_everything();
  listener_.close();
}

Result<void> ProxyShard::bind(std::string_view address, std::uint16_t port) {
  return listener_.bind(address, port);
}

Result<void> ProxyShard::listen() {
  return listener_.listen();
}

void ProxyShard::start() {
  listener_.start();
  reactor_.arm(tick_timer_, kTick);
}

void ProxyShard::tick() {
  flush_logs();
  const std::size_t open = upstreams_.open_connections();
  metrics_.upstream_connections.add(static_cast<std::int64_t>(open) -
                                    static_cast<std::int64_t>(upstreams_counted_));
  upstreams_counted_ = open;
  body_blocks_.age();
  refused_.close_old(reactor_.now());
  if (body_scratch_.capacity() > kUsualScratch) std::string().swap(body_scratch_);
  reactor_.arm(tick_timer_, kTick);
}

bool ProxyShard::make_ids(const std::shared_ptr<TokenJob>& job, Exchange& waiter) {
  job->waiter = &waiter;
  // The pool ends before the shards do.
  job->done = [this](const std::shared_ptr<TokenJob>& made) {
    reactor_.post([made] {
      if (made->waiter != nullptr) made->waiter->on_ids();
    });
  };
  return shared_.token_pool != nullptr && shared_.token_pool->submit(job);
}

void ProxyShard::flush_logs() {
  if (access_log_) access_log_->flush();
  if (decision_log_) decision_log_->flush();
}

// --- connections ---------------------------------------------------------------------------------

void ProxyShard::accepted(int socket, const asio::ip::tcp::endpoint& client) {
  ConnectionPlace place;
  const ConnectionCounts::Verdict verdict =
      shared_.connections.enter(address_bytes(client.address()), place);
  if (verdict != ConnectionCounts::Verdict::kLetIn) return refuse(socket, verdict);
  metrics_.client_connections_opened.add();
  if (tls_arrivals_) return tls_arrivals_->add(socket, client, std::move(place));
  serve(StreamPtr(new SocketStream(reactor_.poller(), socket)), client, std::move(place));
}

void ProxyShard::serve(StreamPtr stream, const asio::ip::tcp::endpoint& client,
                       ConnectionPlace place) {
  auto* const connection = new ClientConnection(*this, std::move(stream), client);
  connection->add_reference();  // given back in connection_closed()
  connections_.push_back(*connection);
  ++connection_count_;
  metrics_.client_connections.add();
  connection->hold(std::move(place));
  connection->start();
}

// A client beyond a limit is told so at once, whatever it was going to ask.
void ProxyShard::refuse(int socket, ConnectionCounts::Verdict why) {
  const bool all = why == ConnectionCounts::Verdict::kTooMany;
  const OwnError error = {
      .status = 503,
      .type = traits(ErrorKind::kInternal).openai_type,
      .message = all ? "as many connections are open as limits.connections allows"
                     : "as many connections of this client are open as "
                       "limits.connections_per_client allows",
      .kind = all ? "too_many_connections" : "too_many_connections_of_client",
      .retry_after_s = 1};
  std::string answer;
  append_error_response(error, next_request_id(), false, false, answer);
  count_own_answer(error.status);
  metrics_.own_errors.add(error.kind);
  const TimePoint now = reactor_.now();
  // In the clear it would be noise to a client that speaks TLS: it sees the close alone.
  refused_.answer(socket, tls_arrivals_ ? std::string_view() : answer, now);
  if (last_refusal_told_at_ == TimePoint{} || now - last_refusal_told_at_ > kTellAgain) {
    log_warning("connections are refused: " + std::string(error.message));
    last_refusal_told_at_ = now;
  }
}

void ProxyShard::connection_closed(ClientConnection& connection) {
  connection.unlink();
  --connection_count_;
  metrics_.client_connections.sub();
  connection.drop_reference();
  check_drained();
}

void ProxyShard::close_idle_connections() {
  connections_.for_each_safely([](ClientConnection& connection) {
    if (connection.idle()) connection.close_now();
  });
}

void ProxyShard::count_own_answer(int status) {
  metrics_.request_started();
  metrics_.request_ended(status, Duration::zero());
}

// --- leaving -------------------------------------------------------------------------------------

void ProxyShard::drain() {
  const Duration delay = shared_.options.timeouts.shutdown_delay;
  if (delay <= Duration::zero()) return leave();
  reactor_.arm(drain_timer_, delay);
}

void ProxyShard::leave() {
  leaving_ = true;
  shared_.closing_idle.store(true, std::memory_order_relaxed);
  listener_.close();
  if (tls_arrivals_) tls_arrivals_->close();
  upstreams_.drop_all();
  reactor_.arm(drain_timer_, shared_.options.timeouts.shutdown_grace);
  close_idle_connections();
  check_drained();
}

void ProxyShard::cut_everything() {
  if (tls_arrivals_) tls_arrivals_->close();
  connections_.for_each_safely([](ClientConnection& connection) {
    const IntrusivePtr<ClientConnection> alive(&connection);
    if (connection.serving()) connection.exchange()->cut_for_shutdown();
    connection.close_now();
  });
  upstreams_.drop_all();
}

void ProxyShard::check_drained() {
  if (!leaving_ || drained_ || connection_count_ > 0) return;
  drained_ = true;
  drain_timer_.cancel();
  flush_logs();
  if (shared_.shards_busy.fetch_sub(1, std::memory_order_acq_rel) == 1 && shared_.on_drained) {
    shared_.on_drained();
  }
}

// --- replicas ------------------------------------------------------------------------------------

void ProxyShard::replica_gone(ReplicaIndex replica) {
  upstreams_.drop(replica);
  active_.for_each_safely([replica](Exchange& exchange) {
    if (exchange.replica() == replica) exchange.on_replica_gone();
  });
}

void ProxyShard::forget_replica(ReplicaIndex replica) {
  upstreams_.drop(replica);
  shared_.deps.activity.forget(replica);
  if (replica < targets_.size()) targets_[replica] = ReplicaTarget{};
}

const FleetView& ProxyShard::view() {
  const Fleet& fleet = shared_.deps.fleet;
  if (view_ && view_->generation == fleet.generation()) return *view_;
  view_ = fleet.view();
  any_usable_ = std::any_of(view_->pools.begin(), view_->pools.end(),
                            [](const PoolView& pool) { return !pool.usable.empty(); });
  known_models_.clear();
  models_counted_ = false;
  return *view_;
}

bool ProxyShard::any_usable() {
  static_cast<void>(view());
  return any_usable_;
}

const ReplicaTarget& ProxyShard::target(ReplicaIndex replica) {
  if (targets_.size() <= replica) targets_.resize(replica + 1);
  ReplicaTarget& target = targets_[replica];
  const std::uint64_t generation = shared_.deps.fleet.generation();
  if (target.generation == generation) return target;
  std::shared_ptr<const ReplicaSpec> spec = shared_.deps.fleet.spec(replica);
  if (target.spec && target.spec != spec) upstreams_.drop(replica);
  target.spec = std::move(spec);
  target.authorization = target.spec && target.spec->api_key_upstream
                             ? "Bearer " + target.spec->api_key
                             : std::string();
  target.generation = generation;
  return target;
}

void ProxyShard::tls_failed(ReplicaIndex replica, const std::error_code& error) {
  metrics_.upstream_tls_failures.add(tls_failure_word(error));
  if (replica >= targets_.size() || !targets_[replica].spec) return;
  ReplicaTarget& target = targets_[replica];
  const TimePoint now = reactor_.coarse_now();
  if (target.tls_failure_told != TimePoint{} && now - target.tls_failure_told < kTellAgain) return;
  target.tls_failure_told = now;
  log_warning("replica " + target.spec->url + ": TLS: " + error.message());
}

ModelState ProxyShard::model_state(std::string_view model) {
  static_cast<void>(view());
  for (const KnownModel& known : known_models_) {
    if (known.name == model) return known.state;
  }
  const ModelState state = shared_.deps.fleet.model_state(model);
  if (known_models_.size() == kKnownModels) known_models_.clear();
  // A name that is not known may become so at any time; asking again is not on the usual path.
  if (state == ModelState::kServed) known_models_.push_back({std::string(model), state});
  return state;
}

const KeySet* ProxyShard::keys() {
  const KeyTable* const table = shared_.deps.keys;
  if (table == nullptr) return nullptr;
  if (const std::uint64_t generation = table->generation(); generation != keys_generation_) {
    keys_ = table->keys();
    keys_generation_ = generation;
  }
  return keys_.get();
}

std::size_t ProxyShard::models_served() {
  static_cast<void>(view());
  if (!models_counted_) {
    models_served_ = shared_.deps.fleet.models_served();
    models_counted_ = true;
  }
  return models_served_;
}

// --- exchanges -----------------------------------------------------------------------------------

Exchange* ProxyShard::take_exchange() {
  if (spare_exchanges_.empty()) return new Exchange(*this);
  Exchange* const exchange = spare_exchanges_.back().release();
  spare_exchanges_.pop_back();
  return exchange;
}

void ProxyShard::give_back_exchange(Exchange* exchange) {
  exchange->reset();
  // One that is beyond the spare ones may still be on the stack: it is deleted later.
  if (spare_exchanges_.size() < kSpareExchanges) {
    spare_exchanges_.emplace_back(exchange);
  } else {
    reactor_.post([owned = std::unique_ptr<Exchange>(exchange)] {});
  }
}

std::string_view ProxyShard::next_request_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t half = 0; half < 2; ++half) {
    std::uint64_t word = rng_();
    for (std::size_t i = 0; i < 16; ++i) {
      request_id_[half * 16 + i] = kDigits[word & 15];
      word >>= 4;
    }
  }
  return {request_id_.data(), request_id_.size()};
}

}  // namespace pointsman
