#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/intrusive.h"
#include "base/time.h"
#include "net/reactor.h"
#include "net/socket_stream.h"
#include "net/tls_context.h"
#include "net/tls_session.h"

namespace pointsman {

class UpstreamPool;

// One connection to a replica: either lent to an exchange, which then attaches itself to the
// stream, or idle in the pool, which watches for its end.
class UpstreamConnection final : public Stream::Events, public ListLink<UpstreamConnection> {
 public:
  UpstreamConnection(UpstreamPool& pool, std::uint32_t target, IntrusivePtr<SocketStream> stream);
  ~UpstreamConnection();

  [[nodiscard]] Stream& stream() { return *stream_; }
  // Once the stream has told that it is decided: how connecting, and the handshake of TLS, ended.
  [[nodiscard]] std::error_code connect_error() const { return stream_->connect_error(); }
  [[nodiscard]] std::uint32_t target() const { return target_; }
  // It has carried an exchange before: the replica may have closed it just now, and a request that
  // finds it closed says nothing about the replica.
  [[nodiscard]] bool reused() const { return reused_; }

 private:
  friend class UpstreamPool;
  void on_readable() override;
  void on_writable() override {}

  UpstreamPool& pool_;
  IntrusivePtr<SocketStream> stream_;
  const std::uint32_t target_;
  bool reused_ = false;
  bool idle_ = false;
  Timer idle_timer_;
};

using UpstreamConnectionPtr = std::unique_ptr<UpstreamConnection>;

// One reactor's connections to replicas. A target is a small number that stands for one replica
// (its index); idle connections are kept for a short time, the one used last is taken first.
//
// Connections notice a dead host by TCP itself (keepalive, TCP_USER_TIMEOUT), while an engine that
// is merely busy, for however long, still acknowledges.
//
// For the reactor's thread only.
class UpstreamPool {
 public:
  struct Options {
    Duration idle = std::chrono::seconds(3);  // engines close theirs after 5 s
    Duration unacknowledged = std::chrono::seconds(30);
  };

  UpstreamPool(Reactor& reactor, const Options& options) : reactor_(reactor), options_(options) {}
  ~UpstreamPool();
  UpstreamPool(const UpstreamPool&) = delete;
  UpstreamPool& operator=(const UpstreamPool&) = delete;

  // An idle connection to the target, or null.
  UpstreamConnectionPtr take(std::uint32_t target);

  // TLS with a target: its certificate must have that name. Null: plain.
  struct Tls {
    std::shared_ptr<const TlsClient> client;
    std::string name;
  };
  // A new connection that has begun to connect: attach to its stream, and want_write() tells when
  // it is decided. Null where it failed at once, with the reason in `error`.
  UpstreamConnectionPtr open(std::uint32_t target, const asio::ip::tcp::endpoint& endpoint,
                             std::error_code& error, const Tls& tls = {});

  // Takes a connection back whose response ended cleanly and that the replica keeps open.
  void keep(UpstreamConnectionPtr connection);

  // Closes the target's idle connections, and forgets its session of TLS; those of all targets.
  void drop(std::uint32_t target);
  void drop_all();

  [[nodiscard]] std::size_t open_connections() const { return open_; }
  [[nodiscard]] std::size_t idle_connections() const { return idle_; }

 private:
  friend class UpstreamConnection;
  using IdleList = IntrusiveList<UpstreamConnection, UpstreamConnection>;

  [[nodiscard]] IntrusivePtr<TlsSession> session(std::uint32_t target);
  void remove_idle(UpstreamConnection& connection);

  Reactor& reactor_;
  const Options options_;
  std::deque<IdleList> idle_by_target_;
  std::vector<IntrusivePtr<TlsSession>> sessions_;  // by target; null: none yet
  std::size_t open_ = 0;
  std::size_t idle_ = 0;
};

}  // namespace pointsman
