#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/zmq_monitor.h"
#include "net/zmq_socket.h"

namespace pointsman {

// Why there is no connection to a publisher of cache events, or was none.
enum class LinkFault : std::uint8_t {
  kNone,      // not yet
  kClosed,    // the engine or the network has ended it
  kRefused,   // who listens there publishes nothing
  kProtocol,  // it was broken off: a message over the limit, or none of a publisher's
  kSilent,    // it is there, and nothing comes although something must
};
inline constexpr std::size_t kLinkFaults = 5;

constexpr std::string_view label(LinkFault fault) {
  constexpr std::array<std::string_view, kLinkFaults> kLabels = {"none", "closed", "refused",
                                                                 "protocol", "silent"};
  return kLabels[static_cast<std::size_t>(fault)];
}

// For a person.
std::string_view describe(LinkFault fault);

// The connection to a publisher that listens. It is made anew, at growing intervals, whenever it is
// lost: ZeroMQ itself gives a connection up for good after an error of the protocol.
//
// For one thread. Nothing it does waits.
class KvEventLink {
 public:
  // `context` outlives it.
  KvEventLink(const ZmqContext& context, std::string endpoint, std::string topic);

  // Once. Error: the endpoint is none.
  Result<void> open();

  // Whether events come now, all of them since `up_since()`.
  [[nodiscard]] bool up() const { return state_ == State::kUp; }
  [[nodiscard]] TimePoint up_since() const { return up_since_; }
  [[nodiscard]] LinkFault fault() const { return fault_; }
  // How often each fault has ended a connection or kept it from being made.
  [[nodiscard]] const std::array<std::uint64_t, kLinkFaults>& faults() const { return faults_; }

  enum class Change { kNone, kUp, kLost };
  // What has become of the connection since the last call: the next change, kNone where there are
  // no more.
  Change look(TimePoint now);
  // Connects anew where that is due. To be called every few dozen milliseconds.
  void tend(TimePoint now);
  // The connection is of no use: it is given up, and made anew.
  void give_up(LinkFault why, TimePoint now);

  // The next message; false where there is none.
  bool receive(std::vector<std::string>& frames);

  // To wait on.
  [[nodiscard]] void* messages() const { return socket_->handle(); }
  [[nodiscard]] void* events() const { return monitor_->handle(); }

 private:
  enum class State {
    kConnecting,
    kUp,
    kLost,     // it is not known yet whether ZeroMQ connects anew
    kRetried,  // ZeroMQ does
  };
  void count() { ++faults_[static_cast<std::size_t>(fault_)]; }

  const ZmqContext& context_;
  const std::string endpoint_;
  const std::string topic_;
  std::unique_ptr<ZmqSocket> socket_;
  std::unique_ptr<ZmqMonitor> monitor_;
  State state_ = State::kConnecting;
  LinkFault fault_ = LinkFault::kNone;
  TimePoint up_since_{};
  TimePoint lost_at_{};
  Duration back_off_;
  std::array<std::uint64_t, kLinkFaults> faults_{};
};

}  // namespace pointsman
