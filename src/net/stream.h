#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "base/intrusive.h"
#include "net/asio.h"
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

// One TCP connection, used by readiness: ask to be told once that it can be read or written, then
// move bytes with read() and write(), which never block. No buffer belongs to a waiting stream, so
// ten thousand silent ones cost nothing but their sockets.
//
// This is the seam for TLS: a stream that encrypts offers the same calls.
//
// One cache line: thousands of silent streams are in no cache when they wake.
//
// Held by IntrusivePtr. The owner calls close() or detach() before it goes, and hears nothing after
// that. For one reactor's thread only.
class alignas(64) Stream final : public RefCounted<Stream>, public Poller::Source {
 public:
  // Who is told. Both may be called with nothing to read or write.
  class Events {
   public:
    virtual void on_readable() = 0;
    virtual void on_writable() = 0;

   protected:
    ~Events() = default;
  };

  explicit Stream(Poller& poller) : poller_(poller) {}
  // Takes a connected, non-blocking socket.
  Stream(Poller& poller, int socket);

  void attach(Events& events) { events_ = &events; }
  void detach() { events_ = nullptr; }

  // Starts to connect; want_write() then tells when it is decided, and connect_error() how.
  // An error here is immediate: no route, no descriptor.
  std::error_code connect(const asio::ip::tcp::endpoint& endpoint);
  [[nodiscard]] std::error_code connect_error() const;

  // One notice to come, never from within the call; asking again while one is to come does nothing.
  // An ended or broken connection counts as readable and writable.
  void want_read();
  void want_write();
  // One on_readable() to come once the other side has ended or broken the connection, with whatever
  // bytes before that still unread: for an owner that has no room for more.
  void want_end();
  // The other side sends no more, or the connection is broken; seen before the end is read.
  [[nodiscard]] bool ended() const { return ended_; }

  IoResult read(char* to, std::size_t size);
  // Writes `first`, then `second`, as far as the socket takes them.
  IoResult write(std::string_view first, std::string_view second = {});

  void shutdown_send();
  // Closes; what was written is still delivered.
  void close();
  // Closes with RST: the other side cannot take it for a good end.
  void reset();
  [[nodiscard]] bool open() const { return socket_ >= 0; }
  [[nodiscard]] int socket() const { return socket_; }

 private:
  friend class RefCounted<Stream>;

  ~Stream() { close(); }
  void on_unreferenced() { delete this; }
  void on_ready(std::uint32_t events) override;
  std::error_code watch();

  Poller& poller_;
  Events* events_ = nullptr;
  int socket_ = -1;
  bool read_wanted_ = false;
  bool write_wanted_ = false;
  bool end_wanted_ = false;
  // What the edges seen so far say, less what read() and write() found since.
  bool readable_ = false;
  bool writable_ = false;
  bool ended_ = false;  // no further edge may come: it stays readable until the end is read
};

static_assert(sizeof(Stream) == 64);

using StreamPtr = IntrusivePtr<Stream>;

}  // namespace pointsman
