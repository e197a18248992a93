#include "net/upstream_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "net/tls_stream.h"

namespace pointsman {
namespace {

void set_option(int socket, int level, int name, int value) {
  // A kernel that refuses one of these still serves; it only notices a dead host later.
  ::setsockopt(socket, level, name, &value, sizeof(value));
}

void detect_dead_host(int socket, Duration unacknowledged) {
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(unacknowledged).count();
  if (milliseconds <= 0) return;
  const int probe_s = static_cast<int>(std::clamp<std::int64_t>(milliseconds / 3000, 1, 3600));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, probe_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, probe_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds));
}

}  // namespace

UpstreamConnection::UpstreamConnection(UpstreamPool& pool, std::uint32_t target,
                                       IntrusivePtr<SocketStream> stream)
    : pool_(pool), stream_(std::move(stream)), target_(target), idle_timer_([this] {
        if (idle_) pool_.remove_idle(*this);
      }) {
  ++pool_.open_;
}

UpstreamConnection::~UpstreamConnection() {
  --pool_.open_;
  stream_->close();
}

void UpstreamConnection::on_readable() {
  if (!idle_) return;
  // Closed by the replica, or bytes that nobody asked for: of no use in either case. But TLS has
  // messages of its own.
  char byte = 0;
  if (stream_->read(&byte, 1).status == IoResult::Status::kWouldBlock) return stream_->want_read();
  pool_.remove_idle(*this);
}

UpstreamPool::~UpstreamPool() {
  drop_all();
}

UpstreamConnectionPtr UpstreamPool::take(std::uint32_t target) {
  if (target >= idle_by_target_.size()) return nullptr;
  UpstreamConnection* const connection = idle_by_target_[target].back();
  if (connection == nullptr) return nullptr;
  connection->unlink();
  connection->idle_ = false;
  connection->stream_->detach();
  --idle_;
  return UpstreamConnectionPtr(connection);
}

UpstreamConnectionPtr UpstreamPool::open(std::uint32_t target,
                                         const asio::ip::tcp::endpoint& endpoint,
                                         std::error_code& error, const Tls& tls) {
  IntrusivePtr<SocketStream> stream;
  if (tls.client == nullptr) {
    stream = IntrusivePtr<SocketStream>(new SocketStream(reactor_.poller()));
  } else {
    stream = IntrusivePtr<SocketStream>(
        new TlsStream(reactor_.poller(), tls.client, tls.name, session(target)));
  }
  auto connection = std::make_unique<UpstreamConnection>(*this, target, std::move(stream));
  error = connection->stream_->connect(endpoint);
  if (error) return nullptr;
  detect_dead_host(connection->stream_->socket(), options_.unacknowledged);
  return connection;
}

void UpstreamPool::keep(UpstreamConnectionPtr connection) {
  if (options_.idle <= Duration::zero()) return;
  while (idle_by_target_.size() <= connection->target_) idle_by_target_.emplace_back();
  connection->reused_ = true;
  connection->idle_ = true;
  connection->stream_->attach(*connection);
  connection->stream_->want_read();
  reactor_.timers().arm_at(connection->idle_timer_, reactor_.coarse_now() + options_.idle);
  auto& idle = idle_by_target_[connection->target_];
  idle.push_back(*connection.release());  // the list has it now
  ++idle_;
}

IntrusivePtr<TlsSession> UpstreamPool::session(std::uint32_t target) {
  if (target >= sessions_.size()) sessions_.resize(target + 1);
  if (!sessions_[target]) sessions_[target] = IntrusivePtr<TlsSession>(new TlsSession);
  return sessions_[target];
}

void UpstreamPool::drop(std::uint32_t target) {
  if (target < sessions_.size()) sessions_[target].reset();
  if (target >= idle_by_target_.size()) return;
  while (UpstreamConnection* connection = idle_by_target_[target].front()) remove_idle(*connection);
}

void UpstreamPool::drop_all() {
  for (std::uint32_t target = 0; target < idle_by_target_.size(); ++target) drop(target);
  sessions_.clear();
}

void UpstreamPool::remove_idle(UpstreamConnection& connection) {
  connection.unlink();
  --idle_;
  delete &connection;
}

}  // namespace pointsman
