#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/intrusive.h"
#include "net/asio.h"

namespace pointsman {

// Sockets of the data plane name their executor's type, which spares a type-erased copy per wait.
using TcpSocket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

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
  std::error_code error;

  [[nodiscard]] bool ok() const { return status == Status::kOk; }
};

// One TCP connection, used by readiness: ask to be told once that it can be read or written, then
// move bytes with read() and write(), which never block. No buffer belongs to a waiting stream, so
// ten thousand silent ones cost nothing but their sockets.
//
// This is the seam for TLS: a stream that encrypts offers the same calls.
//
// Life: held by IntrusivePtr. A pending notice keeps the stream itself alive, but not its owner:
// the owner calls close() or detach() before it goes, and hears nothing after that.
// For one reactor's thread only.
class Stream final : public RefCounted<Stream> {
 public:
  // Who is told. Both may be called with nothing to read or write.
  class Events {
   public:
    virtual void on_readable() = 0;
    virtual void on_writable() = 0;

   protected:
    ~Events() = default;
  };

  explicit Stream(asio::io_context& io) : socket_(io.get_executor()) {}
  explicit Stream(TcpSocket socket) : socket_(std::move(socket)) {}

  void attach(Events& events) { events_ = &events; }
  void detach() { events_ = nullptr; }

  // Starts to connect; want_write() then tells when it is decided, and connect_error() how.
  // An error here is immediate: no route, no descriptor.
  std::error_code connect(const asio::ip::tcp::endpoint& endpoint);
  [[nodiscard]] std::error_code connect_error();

  // One notice to come; asking again while one is pending does nothing. An ended or broken
  // connection counts as readable and writable.
  void want_read();
  void want_write();

  IoResult read(char* to, std::size_t size);
  // Writes `first`, then `second`, as far as the socket takes them.
  IoResult write(std::string_view first, std::string_view second = {});

  // True where the connection has ended, broken, or holds bytes that nobody asked for. One system
  // call.
  [[nodiscard]] bool readable_or_ended();

  void shutdown_send();
  // Closes; what was written is still delivered.
  void close();
  // Closes with RST: the other side cannot take it for a good end.
  void reset();
  [[nodiscard]] bool open() const { return socket_.is_open(); }

  TcpSocket& socket() { return socket_; }

 private:
  friend class RefCounted<Stream>;
  // Room for one pending operation of Asio's, so that waiting allocates nothing.
  struct Room {
    alignas(std::max_align_t) std::array<std::byte, 192> bytes;
    bool used = false;
  };
  template <typename T>
  class RoomAllocator;
  template <void (Stream::*kNotice)()>
  struct Waiter;

  ~Stream() = default;
  void on_unreferenced() { delete this; }
  void notice_read();
  void notice_write();

  TcpSocket socket_;
  Events* events_ = nullptr;
  bool read_pending_ = false;
  bool write_pending_ = false;
  Room read_room_;
  Room write_room_;
};

using StreamPtr = IntrusivePtr<Stream>;

}  // namespace pointsman
