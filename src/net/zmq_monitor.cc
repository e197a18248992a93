#include "net/zmq_monitor.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include <zmq.h>

namespace pointsman {
namespace {

constexpr int kRefusals = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr int kWatched =
    ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED | kRefusals;

// A monitor's endpoint is a name within the context, which no two may have.
std::string new_endpoint() {
  static std::atomic<std::uint64_t> count{0};
  return "inproc://monitor-" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
}

std::optional<ZmqMonitor::Event::Type> type_of(std::uint16_t event) {
  using Type = ZmqMonitor::Event::Type;
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return Type::kUp;
  if (event == ZMQ_EVENT_DISCONNECTED) return Type::kLost;
  if (event == ZMQ_EVENT_CONNECT_RETRIED) return Type::kRetried;
  if ((event & kRefusals) != 0) return Type::kRefused;
  return std::nullopt;
}

}  // namespace

ZmqMonitor::ZmqMonitor(const ZmqContext& context, const ZmqSocket& socket)
    : handle_(zmq_socket(context.handle(), ZMQ_PAIR)) {
  const std::string endpoint = new_endpoint();
  const int none = 0;
  zmq_setsockopt(handle_, ZMQ_LINGER, &none, sizeof(none));
  // No limit: with one, ZeroMQ's own thread would wait for us here, and all sockets with it.
  zmq_setsockopt(handle_, ZMQ_RCVHWM, &none, sizeof(none));
  zmq_socket_monitor(socket.handle(), endpoint.c_str(), kWatched);
  zmq_connect(handle_, endpoint.c_str());
}

ZmqMonitor::~ZmqMonitor() {
  if (handle_ != nullptr) zmq_close(handle_);
}

// Of two frames: the event's number (16 bits) and value (32 bits), in the machine's order, and the
// endpoint.
bool ZmqMonitor::next(Event& event) {
  for (;;) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return false;
    }
    std::uint16_t number = 0;
    std::int32_t value = 0;
    if (zmq_msg_size(&message) >= sizeof(number) + sizeof(value)) {
      const char* const bytes = static_cast<const char*>(zmq_msg_data(&message));
      std::memcpy(&number, bytes, sizeof(number));
      std::memcpy(&value, bytes + sizeof(number), sizeof(value));
    }
    bool more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
    while (more) {
      zmq_msg_init(&message);
      more = zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&message) != 0;
      zmq_msg_close(&message);
    }
    const std::optional<Event::Type> type = type_of(number);
    if (!type) continue;
    event = {*type, value};
    return true;
  }
}

}  // namespace pointsman
