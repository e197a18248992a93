#pragma once

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/asio.h"
#include "plain_message.h"
#include "policies/register.h"
#include "proxy/proxy_shard.h"

namespace pointsman::test {

// One end of a connection in a test that plays all sides on one thread: nothing blocks.
class StepSocket {
 public:
  explicit StepSocket(int socket = -1) : socket_(socket) {}
  StepSocket(StepSocket&& other) noexcept { *this = std::move(other); }
  StepSocket& operator=(StepSocket&& other) noexcept {
    reset();
    socket_ = std::exchange(other.socket_, -1);
    in_ = std::move(other.in_);
    ended_ = other.ended_;
    broken_ = other.broken_;
    return *this;
  }
  ~StepSocket() { reset(); }

  static StepSocket to(const asio::ip::tcp::endpoint& endpoint) {
    const int socket = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
      ::close(socket);
      return StepSocket();
    }
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    return StepSocket(socket);
  }

  [[nodiscard]] bool open() const { return socket_ >= 0; }
  // Bytes taken; fewer than all where the other side does not read.
  std::size_t send(std::string_view bytes) {
    if (!open() || bytes.empty()) return 0;
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  // Takes what has come, up to `most` bytes, to the end of in().
  void receive(std::size_t most = std::size_t{1} << 20) {
    while (open() && !ended_ && !broken_ && most > 0) {
      char bytes[16384];
      const ssize_t got = ::recv(socket_, bytes, std::min(most, sizeof bytes), 0);
      if (got > 0) {
        in_.append(bytes, static_cast<std::size_t>(got));
        most -= static_cast<std::size_t>(got);
        continue;
      }
      if (got == 0) ended_ = true;
      if (got < 0 && errno != EAGAIN) broken_ = true;
      return;
    }
  }
  [[nodiscard]] std::string& in() { return in_; }
  [[nodiscard]] bool ended() const { return ended_; }    // with a FIN
  [[nodiscard]] bool broken() const { return broken_; }  // with a RST
  [[nodiscard]] bool over() const { return ended_ || broken_; }

  void shut_write() {
    if (open()) ::shutdown(socket_, SHUT_WR);
  }
  void close() {
    if (open()) ::close(socket_);
    socket_ = -1;
  }
  // Closes with a RST, which leaves no port in TIME_WAIT.
  void reset() {
    if (!open()) return;
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

 private:
  int socket_ = -1;
  std::string in_;
  bool ended_ = false;
  bool broken_ = false;
};

// A replica's listening port.
class StepListener {
 public:
  explicit StepListener(const std::string& address = "127.0.0.1") {
    asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address), 0);
    socket_ = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    auto size = static_cast<socklen_t>(endpoint.size());
    if (::bind(socket_, endpoint.data(), size) == 0 && ::listen(socket_, 64) == 0 &&
        ::getsockname(socket_, endpoint.data(), &size) == 0) {
      port_ = endpoint.port();
    }
  }
  ~StepListener() { ::close(socket_); }
  StepListener(const StepListener&) = delete;
  StepListener& operator=(const StepListener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Not open where nobody waits.
  StepSocket accept() {
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int on = 1;
    if (socket >= 0) ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return StepSocket(socket);
  }

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;  // 0: this machine does not have the address
};

// One shard of a data plane that runs only when it is told to, by a clock that the test holds.
class SteppedProxy {
 public:
  explicit SteppedProxy(ProxyOptions options = {}, Resolver::Lookup lookup = &Resolver::look_up,
                        const std::string& address = "127.0.0.1")
      : address_(address), resolver_(std::chrono::seconds(30), clock_, std::move(lookup)) {
    options.listen_address = address;
    options.listen_port = 0;
    PolicySpec spec;
    spec.preset = "round_robin";
    std::vector<std::unique_ptr<Pipeline>> pipelines;
    pipelines.push_back(std::move(*make_registry().build(spec)));
    router_ = std::make_unique<SharedRouter>(Router::Options{}, std::move(pipelines));
    shared_ = std::make_unique<ProxyShared>(options, ProxyDependencies{.fleet = fleet_,
                                                                       .router = *router_,
                                                                       .activity = activity_,
                                                                       .resolver = resolver_,
                                                                       .metrics = metrics_,
                                                                       .append_models = {},
                                                                       .refresh_models = {},
                                                                       .orca_report = {}});
    shard_ = std::make_unique<ProxyShard>(*shared_, 0, clock_);
    if (!shard_->bind(address, 0).ok() || !shard_->listen().ok()) std::abort();
    shard_->start();
  }

  // A replica that is ready.
  ReplicaIndex add(std::uint16_t port, const std::string& host = "127.0.0.1") {
    ReplicaSpec spec;
    const bool v6 = host.find(':') != std::string::npos;
    spec.authority = (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
    spec.url = "http://" + spec.authority;
    spec.host = host;
    spec.port = port;
    const Result<ReplicaIndex> added = fleet_.add(spec);
    fleet_.probe_result(*added, {ProbeResult::Kind::kReady, ""});
    ++replicas_;
    return *added;
  }

  [[nodiscard]] StepSocket client() {
    return StepSocket::to({asio::ip::make_address(address_), shard_->port()});
  }
  void turn(int rounds = 1) {
    for (int i = 0; i < rounds; ++i) shard_->reactor().run_ready();
  }
  // Turns until it holds. The kernel may be late on a busy machine: gives up after ten seconds.
  [[nodiscard]] bool until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!holds()) {
      turn();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  // Until the replica has a whole request on `socket`, which is its next connection where it is not
  // open yet.
  [[nodiscard]] bool asked(StepListener& listener, StepSocket& socket) {
    return until([&] {
      if (!socket.open()) socket = listener.accept();
      socket.receive();
      return read_message(socket.in()).has_value();
    });
  }
  // Until the client has a whole message.
  [[nodiscard]] bool told(StepSocket& client, bool to_head = false) {
    return until([&] {
      client.receive();
      return read_message(client.in(), to_head, client.ended()).has_value();
    });
  }
  // Until the other side has ended the connection, in whatever way.
  [[nodiscard]] bool over(StepSocket& socket) {
    return until([&] {
      socket.receive();
      return socket.over();
    });
  }
  void advance(Duration by) {
    clock_.advance(by);
    turn();
  }

  [[nodiscard]] std::int32_t in_flight() {
    return router_->with([&](Router& router) {
      std::int32_t all = 0;
      for (ReplicaIndex i = 0; i < replicas_; ++i) all += router.ledger()[i].in_flight;
      return all;
    });
  }
  [[nodiscard]] std::int64_t connections() { return metrics().client_connections.value(); }
  [[nodiscard]] std::size_t held_bytes() const { return shared_->body_memory.used(); }
  [[nodiscard]] ProxyMetrics::Shard& metrics() { return metrics_.shard(0); }
  [[nodiscard]] ProxyShard& shard() { return *shard_; }
  [[nodiscard]] Fleet& fleet() { return fleet_; }

 private:
  const std::string address_;
  ManualClock clock_;
  Fleet fleet_{{{"general", PoolPurpose::kGeneral}}, HealthOptions{}, clock_};
  ReplicaActivity activity_;
  Resolver resolver_;
  ProxyMetrics metrics_{1};
  std::size_t replicas_ = 0;
  std::unique_ptr<SharedRouter> router_;
  std::unique_ptr<ProxyShared> shared_;
  std::unique_ptr<ProxyShard> shard_;
};

}  // namespace pointsman::test
