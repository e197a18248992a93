#pragma once

#include <cstddef>
#include <deque>
#include <string_view>

#include "base/time.h"

namespace pointsman {

// Connections that were told that there is no room for them. Each stays open for a moment longer,
// unread: a close at once would answer the request that is just coming with a RST, which can
// overtake what it was told. There are never more than a few of them.
class RefusedConnections {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr Duration kStay = std::chrono::seconds(1);

  RefusedConnections() = default;
  ~RefusedConnections();
  RefusedConnections(const RefusedConnections&) = delete;
  RefusedConnections& operator=(const RefusedConnections&) = delete;

  // Sends `text`, or as much of it as the socket takes at once, and nothing after it. The socket is
  // this object's from here on.
  void answer(int socket, std::string_view text, TimePoint now);
  // Closes those that have been here for long enough. Called about every half second.
  void close_old(TimePoint now);

 private:
  struct Refused {
    int socket;
    TimePoint at;
  };
  void close_first();

  std::deque<Refused> open_;  // the oldest first
};

}  // namespace pointsman
