#include "proxy/proxy_server.h"

#include <mutex>
#include <thread>
#include <utility>

#include <sys/resource.h>

#include "base/log.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// Below this many descriptors a busy evening may run into the limit: each request under way takes
// two.
constexpr rlim_t kFewDescriptors = 8192;

void warn_of_few_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFewDescriptors) return;
  log_warning("this process may open " + std::to_string(limit.rlim_cur) +
              " descriptors, which is about " + std::to_string(limit.rlim_cur / 2) +
              " requests at a time; raise the limit with `ulimit -n`");
}

// SO_REUSEPORT, which lets our own threads share the port, would let another program of the same
// user take half of the connections unnoticed.
Result<void> check_port_is_free(const std::string& address, std::uint16_t port) {
  std::error_code error;
  asio::io_context io;
  const auto ip = asio::ip::make_address(address, error);
  asio::ip::tcp::acceptor probe(io);
  const asio::ip::tcp::endpoint endpoint(ip, port);
  if (!error) probe.open(endpoint.protocol(), error);
  if (!error) probe.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) probe.bind(endpoint, error);
  // A port that another process has bound and does not listen on yet shows only now.
  if (!error) probe.listen(1, error);
  if (!error) return {};
  return Error{ErrorKind::kInternal,
               "cannot listen on " + address + ":" + std::to_string(port) + ": " + error.message()};
}

}  // namespace

// The fleet keeps its listeners for good; this outlives the server and lets go of it.
struct ProxyServer::Hub {
  std::mutex mutex;
  std::vector<ProxyShard*> shards;

  template <typename Task>
  void post(const Task& task) {
    const std::lock_guard lock(mutex);
    for (ProxyShard* const shard : shards) {
      shard->reactor().post([shard, task] { task(*shard); });
    }
  }
};

ProxyServer::ProxyServer(const ProxyOptions& options, const ProxyDependencies& dependencies)
    : shared_(std::make_unique<ProxyShared>(options, dependencies)), hub_(std::make_shared<Hub>()) {
  for (std::size_t i = 0; i < options.threads; ++i) {
    shards_.push_back(std::make_unique<ProxyShard>(*shared_, i));
    hub_->shards.push_back(shards_.back().get());
  }
  dependencies.fleet.add_listener(
      {.gone =
           [hub = hub_](ReplicaIndex replica) {
             hub->post([replica](ProxyShard& shard) { shard.replica_gone(replica); });
           },
       .forget =
           [hub = hub_](ReplicaIndex replica) {
             hub->post([replica](ProxyShard& shard) { shard.forget_replica(replica); });
           }});
}

ProxyServer::~ProxyServer() {
  stop();
  const std::lock_guard lock(hub_->mutex);
  hub_->shards.clear();
}

Result<void> ProxyServer::bind() {
  const ProxyOptions& options = shared_->options;
  port_ = options.listen_port;
  if (port_ != 0) {
    if (Result<void> free = check_port_is_free(options.listen_address, port_); !free) return free;
  }
  for (const auto& shard : shards_) {
    if (Result<void> bound = shard->bind(options.listen_address, port_); !bound) return bound;
    port_ = shard->port();
  }
  return {};
}

Result<void> ProxyServer::start() {
  warn_of_few_descriptors();
  for (const auto& shard : shards_) {
    if (Result<void> listening = shard->listen(); !listening) return listening;
  }
  for (const auto& shard : shards_) {
    shard->reactor().post([shard = shard.get()] { shard->start(); });
    threads_.emplace_back([shard = shard.get()] { shard->reactor().run(); });
  }
  return {};
}

void ProxyServer::drain(std::function<void()> done) {
  if (shared_->draining.exchange(true)) return;
  shared_->on_drained = std::move(done);
  shared_->shards_busy.store(shards_.size());
  hub_->post([](ProxyShard& shard) { shard.drain(); });
}

void ProxyServer::cut() {
  hub_->post([](ProxyShard& shard) { shard.cut_everything(); });
}

void ProxyServer::stop() {
  for (const auto& shard : shards_) shard->reactor().stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (shared_->token_pool) shared_->token_pool->stop();
}

bool ProxyServer::ready() const {
  return !shared_->draining.load() && shared_->deps.fleet.any_usable();
}

}  // namespace pointsman
