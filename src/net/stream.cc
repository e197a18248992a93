#include "net/stream.h"

namespace pointsman {

void Stream::want_read() {
  if (!open_) return;
  read_wanted_ = true;
  if (readable_) poller_.soon(*this);
}

void Stream::want_write() {
  if (!open_) return;
  write_wanted_ = true;
  if (writable_) poller_.soon(*this);
}

void Stream::want_end() {
  if (!open_) return;
  end_wanted_ = true;
  if (ended_) want_read();
}

void Stream::tell() {
  if (ended_ && end_wanted_) read_wanted_ = true;
  const StreamPtr alive(this);
  if (read_wanted_ && readable_ && events_ != nullptr) {
    read_wanted_ = false;
    events_->on_readable();
  }
  if (write_wanted_ && writable_ && events_ != nullptr) {
    write_wanted_ = false;
    events_->on_writable();
  }
}

}  // namespace pointsman
