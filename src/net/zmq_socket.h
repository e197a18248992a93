#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pointsman {

// The ZeroMQ library's own threads. Outlives its sockets.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_;
};

// One socket of libzmq, for one thread. Nothing it does waits.
class ZmqSocket {
 public:
  enum class Kind {
    kSubscriber,  // takes what publishers send
    kDealer,      // asks, and takes any number of answers
    kPublisher,   // sends to all who have subscribed
    kRouter,      // is asked; a message's first frame says by whom, or is for whom
  };
  ZmqSocket(const ZmqContext& context, Kind kind);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  // To where the other side listens. It need not be there yet, and may come and go.
  Result<void> connect(const std::string& endpoint);
  // To where others connect. Error: the address is in use or is none.
  Result<void> bind(const std::string& endpoint);
  // The messages whose first frame begins so.
  Result<void> subscribe(std::string_view topic);
  // What was bound or connected to last, with the port that was found for port 0 or *.
  [[nodiscard]] std::string endpoint() const;

  // False where nobody is connected, or cannot take it now. A publisher's messages are dropped for
  // a subscriber that is too slow, and send() does not say so.
  bool send(const std::vector<std::string_view>& frames);
  // The next message's frames; false where there is none. Frames beyond kMostFrames are dropped.
  // `connection`: the descriptor of the connection that it came on, as ZmqMonitor has it; -1: not
  // known.
  bool receive(std::vector<std::string>& frames, int* connection = nullptr);
  static constexpr std::size_t kMostFrames = 8;

  [[nodiscard]] void* handle() const { return handle_; }
  // Becomes readable when something may have come. Edge-triggered: receive() until there is nothing
  // more, then wait. It stays the socket's.
  [[nodiscard]] int descriptor() const;

 private:
  void* handle_;
};

}  // namespace pointsman
