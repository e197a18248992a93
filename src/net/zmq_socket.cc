#include "net/zmq_socket.h"

#include <zmq.h>

namespace pointsman {
namespace {

// A batch of events of a large engine has some ten KiB; larger messages are no batches.
constexpr std::int64_t kMaxMessage = std::int64_t{16} << 20;
// What a router socket is asked is a number; ZeroMQ's own greeting fits as well.
constexpr std::int64_t kMaxQuestion = 1'024;
constexpr int kMaxQueued = 10'000;  // messages that may wait in a socket; more are dropped
// Messages that may wait for one peer that does not read; it gets no more.
constexpr int kMaxUnsent = 1'000;
constexpr int kMaxUnsentAnswers = 20'000;  // likewise of a router socket, which answers with many
constexpr int kMaxSockets = 65'535;        // of a context
constexpr int kReconnectMs = 100;
constexpr int kMaxReconnectMs = 2'000;
// Connections that have died without a word are noticed, and made again.
constexpr int kHeartbeatMs = 5'000;
constexpr int kHeartbeatTimeoutMs = 15'000;

Error zmq_error(const std::string& what) {
  return {ErrorKind::kFault, what + ": " + zmq_strerror(zmq_errno())};
}

int type_of(ZmqSocket::Kind kind) {
  switch (kind) {
    case ZmqSocket::Kind::kSubscriber:
      return ZMQ_SUB;
    case ZmqSocket::Kind::kDealer:
      return ZMQ_DEALER;
    case ZmqSocket::Kind::kPublisher:
      return ZMQ_PUB;
    case ZmqSocket::Kind::kRouter:
      return ZMQ_ROUTER;
  }
  return -1;  // which no socket is made of
}

template <typename T>
void set(void* socket, int option, T value) {
  zmq_setsockopt(socket, option, &value, sizeof(value));
}

}  // namespace

ZmqContext::ZmqContext() : handle_(zmq_ctx_new()) {
  zmq_ctx_set(handle_, ZMQ_MAX_SOCKETS, kMaxSockets);
}

ZmqContext::~ZmqContext() {
  zmq_ctx_term(handle_);
}

ZmqSocket::ZmqSocket(const ZmqContext& context, Kind kind)
    : handle_(zmq_socket(context.handle(), type_of(kind))) {
  set(handle_, ZMQ_LINGER, 0);
  set(handle_, ZMQ_IPV6, 1);
  const bool answers = kind == Kind::kRouter;
  set(handle_, ZMQ_MAXMSGSIZE, answers ? kMaxQuestion : kMaxMessage);
  set(handle_, ZMQ_RCVHWM, kMaxQueued);
  set(handle_, ZMQ_SNDHWM, answers ? kMaxUnsentAnswers : kMaxUnsent);
  // So that send() fails for a peer that is gone or does not read, where ZeroMQ would say nothing.
  if (answers) set(handle_, ZMQ_ROUTER_MANDATORY, 1);
  set(handle_, ZMQ_IMMEDIATE, 1);
  set(handle_, ZMQ_RECONNECT_IVL, kReconnectMs);
  set(handle_, ZMQ_RECONNECT_IVL_MAX, kMaxReconnectMs);
  set(handle_, ZMQ_HEARTBEAT_IVL, kHeartbeatMs);
  set(handle_, ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
}

ZmqSocket::~ZmqSocket() {
  if (handle_ != nullptr) zmq_close(handle_);
}

Result<void> ZmqSocket::connect(const std::string& endpoint) {
  if (handle_ == nullptr || zmq_connect(handle_, endpoint.c_str()) != 0) return zmq_error(endpoint);
  return {};
}

Result<void> ZmqSocket::bind(const std::string& endpoint) {
  if (handle_ == nullptr || zmq_bind(handle_, endpoint.c_str()) != 0) return zmq_error(endpoint);
  return {};
}

Result<void> ZmqSocket::subscribe(std::string_view topic) {
  if (handle_ == nullptr ||
      zmq_setsockopt(handle_, ZMQ_SUBSCRIBE, topic.data(), topic.size()) != 0) {
    return zmq_error("subscribe");
  }
  return {};
}

std::string ZmqSocket::endpoint() const {
  char endpoint[256] = {};
  std::size_t size = sizeof(endpoint);
  if (zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, endpoint, &size) != 0) return {};
  return endpoint;
}

int ZmqSocket::descriptor() const {
  int descriptor = -1;
  std::size_t size = sizeof(descriptor);
  return zmq_getsockopt(handle_, ZMQ_FD, &descriptor, &size) == 0 ? descriptor : -1;
}

bool ZmqSocket::send(const std::vector<std::string_view>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    const int sent = zmq_send(handle_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more);
    if (sent < 0) return false;
  }
  return true;
}

bool ZmqSocket::receive(std::vector<std::string>& frames, int* connection) {
  frames.clear();
  zmq_msg_t message;
  for (;;) {
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return false;  // of a message either all frames have come or none
    }
    const bool more = zmq_msg_more(&message) != 0;
    if (connection != nullptr) *connection = zmq_msg_get(&message, ZMQ_SRCFD);
    if (frames.size() < kMostFrames) {
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    }
    zmq_msg_close(&message);
    if (!more) return true;
  }
}

}  // namespace pointsman
