#include "proxy/refused_connections.h"

#include <sys/socket.h>
#include <unistd.h>

namespace pointsman {

RefusedConnections::~RefusedConnections() {
  while (!open_.empty()) close_first();
}

void RefusedConnections::answer(int socket, std::string_view text, TimePoint now) {
  // A fresh socket takes far more than this; one that does not has gone.
  static_cast<void>(::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  ::shutdown(socket, SHUT_WR);
  if (open_.size() == kMost) close_first();
  open_.push_back({socket, now});
}

void RefusedConnections::close_old(TimePoint now) {
  while (!open_.empty() && now - open_.front().at >= kStay) close_first();
}

void RefusedConnections::close_first() {
  ::close(open_.front().socket);
  open_.pop_front();
}

}  // namespace pointsman
