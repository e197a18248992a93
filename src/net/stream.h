#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "base/intrusive.h"
#include "net/poller.h"

namespace pointsman {

// How one attempt to move bytes ended.
struct IoResult {
  enum class Status : std::uint8_t {
    kOk,          // `bytes` moved, at least one
    kWouldBlock,  // nothing moved; ask to be told when it can
    kEnd,         // reading only: the other side sends no more
    kError,       // the connection is broken; see `error`
  };
  Status status = Status::kOk;
  std::size_t bytes = 0;
  std::error_code error{};

  [[nodiscard]] bool ok() const { return status == Status::kOk; }
};

// Bytes to and from one peer, used by readiness: ask to be told once that they can be read or
// written, then move them with read() and write(), which never block. No buffer belongs to a
// waiting stream, so ten thousand silent ones cost nothing but their sockets.
//
// What carries the bytes is the derived class's matter: a socket (net/socket_stream.h), or one of
// the streams of a connection that has several.
//
// Held by IntrusivePtr. The owner calls close() or detach() before it goes, and hears nothing after
// that. For one reactor's thread only.
class Stream : public Poller::Source, public RefCounted<Stream> {
 public:
  // Who is told. Both may be called with nothing to read or write.
  class Events {
   public:
    virtual void on_readable() = 0;
    virtual void on_writable() = 0;

   protected:
    ~Events() = default;
  };

  void attach(Events& events) { events_ = &events; }
  void detach() { events_ = nullptr; }

  // One notice to come, never from within the call; asking again while one is to come does nothing.
  // An ended or broken connection counts as readable and writable.
  void want_read();
  void want_write();
  // One on_readable() to come once the other side has ended or broken the connection, with whatever
  // bytes before that still unread: for an owner that has no room for more.
  void want_end();
  // The other side sends no more, or the connection is broken; seen before the end is read.
  [[nodiscard]] bool ended() const { return ended_; }

  virtual IoResult read(char* to, std::size_t size) = 0;
  // Writes `first`, then `second`, as far as they are taken.
  virtual IoResult write(std::string_view first, std::string_view second = {}) = 0;

  virtual void shutdown_send() = 0;
  // Closes; what was written is still delivered.
  virtual void close() = 0;
  // Closes so that the other side cannot take it for a good end.
  virtual void reset() = 0;
  [[nodiscard]] bool open() const { return open_; }

 protected:
  explicit Stream(Poller& poller) : poller_(poller) {}
  virtual ~Stream() = default;

  // Gives the notices that are wanted and due.
  void tell();

  // What is known of the connection, less what read() and write() found since. Kept by the derived
  // class; these stand here, and first, so that a socket's stream fits into one cache line.
  bool open_ = false;
  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;  // no further edge may come: it stays readable until the end is read

 private:
  friend class RefCounted<Stream>;
  void on_unreferenced() { delete this; }

  bool read_wanted_ = false;
  bool write_wanted_ = false;
  bool end_wanted_ = false;

 protected:
  Poller& poller_;
  Events* events_ = nullptr;
};

using StreamPtr = IntrusivePtr<Stream>;

}  // namespace pointsman
