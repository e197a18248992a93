#pragma once

#include "net/zmq_socket.h"

namespace pointsman {

// What becomes of a ZeroMQ socket's connections, which the socket itself does not say: messages
// come from one that was lost no more, and nothing else happens. ZeroMQ connects anew where the
// peer or the network closed the connection. After an error of the protocol (a message over the
// limit, a peer of the wrong kind) it does not, and the socket is of no use any more.
//
// Not thread-safe. It may go before its socket or after it.
class ZmqMonitor {
 public:
  struct Event {
    enum class Type {
      kUp,       // a peer was greeted: messages may come
      kRefused,  // somebody is there, and is no peer for this socket
      kLost,     // the connection has ended, or has failed before it was up
      kRetried,  // ZeroMQ will connect anew
    };
    Type type;
    int descriptor;  // of the connection; kRetried: meaningless
  };

  // Of a socket that is not connected or bound yet, so that no event is missed.
  ZmqMonitor(const ZmqContext& context, const ZmqSocket& socket);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  // The next event; false where there is none.
  bool next(Event& event);

  // To wait on.
  [[nodiscard]] void* handle() const { return handle_; }

 private:
  void* handle_;
};

}  // namespace pointsman
