#include "feeds/kv_event_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pointsman {
namespace {

constexpr Duration kFirstBackOff = std::chrono::milliseconds(100);
constexpr Duration kLongestBackOff = std::chrono::seconds(2);

}  // namespace

std::string_view describe(LinkFault fault) {
  switch (fault) {
    case LinkFault::kNone:
      return "there is no connection to the publisher yet";
    case LinkFault::kClosed:
      return "the connection to the publisher was closed";
    case LinkFault::kRefused:
      return "what listens on the port is no publisher of events";
    case LinkFault::kProtocol:
      return "the connection was broken off: a message of more than 16 MiB, or none of a "
             "publisher's";
    case LinkFault::kSilent:
      return "prompts were computed, and no event was heard";
  }
  return "";
}

KvEventLink::KvEventLink(const ZmqContext& context, std::string endpoint, std::string topic)
    : context_(context),
      endpoint_(std::move(endpoint)),
      topic_(std::move(topic)),
      back_off_(kFirstBackOff) {}

Result<void> KvEventLink::open() {
  monitor_.reset();
  socket_ = std::make_unique<ZmqSocket>(context_, ZmqSocket::Kind::kSubscriber);
  monitor_ = std::make_unique<ZmqMonitor>(context_, *socket_);
  if (const Result<void> done = socket_->subscribe(topic_); !done) return done.error();
  return socket_->connect(endpoint_);
}

KvEventLink::Change KvEventLink::look(TimePoint now) {
  using Type = ZmqMonitor::Event::Type;
  ZmqMonitor::Event event{};
  while (monitor_->next(event)) {
    switch (event.type) {
      case Type::kUp:
        state_ = State::kUp;
        up_since_ = now;
        return Change::kUp;
      case Type::kRefused:
        give_up(LinkFault::kRefused, now);
        return Change::kLost;
      case Type::kLost:
        // Of one connection both may come, this one last.
        if (state_ == State::kLost) break;
        give_up(up() ? LinkFault::kClosed : LinkFault::kRefused, now);
        return Change::kLost;
      case Type::kRetried:
        if (state_ != State::kLost) break;
        state_ = State::kRetried;
        count();
        break;
    }
  }
  return Change::kNone;
}

void KvEventLink::give_up(LinkFault why, TimePoint now) {
  state_ = State::kLost;
  fault_ = why;
  lost_at_ = now;
}

void KvEventLink::tend(TimePoint now) {
  if (state_ != State::kLost || now - lost_at_ < back_off_) return;
  back_off_ = std::min(2 * back_off_, kLongestBackOff);
  // ZeroMQ would have said by now that it connects anew.
  if (fault_ == LinkFault::kClosed) fault_ = LinkFault::kProtocol;
  count();
  state_ = State::kConnecting;
  if (!open()) {
    state_ = State::kLost;
    lost_at_ = now;
  }
}

bool KvEventLink::receive(std::vector<std::string>& frames) {
  if (!socket_->receive(frames)) return false;
  back_off_ = kFirstBackOff;
  return true;
}

}  // namespace pointsman
