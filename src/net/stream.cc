#include "net/stream.h"

#include <cerrno>
#include <new>

#include <sys/socket.h>
#include <sys/uio.h>

namespace pointsman {

template <typename T>
class Stream::RoomAllocator {
 public:
  using value_type = T;

  explicit RoomAllocator(Room& room) : room_(&room) {}
  template <typename U>
  explicit RoomAllocator(const RoomAllocator<U>& other) : room_(other.room_) {}

  T* allocate(std::size_t count) {
    if (room_->used || count * sizeof(T) > room_->bytes.size()) {
      return static_cast<T*>(::operator new(count * sizeof(T)));
    }
    room_->used = true;
    return reinterpret_cast<T*>(room_->bytes.data());
  }
  void deallocate(T* memory, std::size_t) {
    if (reinterpret_cast<std::byte*>(memory) == room_->bytes.data()) {
      room_->used = false;
    } else {
      ::operator delete(memory);
    }
  }

  template <typename U>
  bool operator==(const RoomAllocator<U>& other) const {
    return room_ == other.room_;
  }

 private:
  template <typename U>
  friend class RoomAllocator;
  Room* room_;
};

// Holds the stream: the room that Asio's operation lies in is the stream's own, and Asio frees the
// operation before it calls the handler, or destroys the handler after the operation.
template <void (Stream::*kNotice)()>
struct Stream::Waiter {
  using allocator_type = RoomAllocator<std::byte>;

  StreamPtr stream;
  Room* room;

  [[nodiscard]] allocator_type get_allocator() const { return allocator_type(*room); }
  void operator()(const std::error_code&) const { (stream.get()->*kNotice)(); }
};

std::error_code Stream::connect(const asio::ip::tcp::endpoint& endpoint) {
  std::error_code error;
  socket_.open(endpoint.protocol(), error);
  if (error) return error;
  socket_.non_blocking(true, error);
  if (error) return error;
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return error;
  if (::connect(socket_.native_handle(), endpoint.data(),
                static_cast<socklen_t>(endpoint.size())) == 0 ||
      errno == EINPROGRESS) {
    return {};
  }
  return {errno, std::system_category()};
}

std::error_code Stream::connect_error() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(socket_.native_handle(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  return {error, std::system_category()};
}

void Stream::want_read() {
  if (read_pending_ || !socket_.is_open()) return;
  read_pending_ = true;
  socket_.async_wait(TcpSocket::wait_read,
                     Waiter<&Stream::notice_read>{StreamPtr(this), &read_room_});
}

void Stream::want_write() {
  if (write_pending_ || !socket_.is_open()) return;
  write_pending_ = true;
  socket_.async_wait(TcpSocket::wait_write,
                     Waiter<&Stream::notice_write>{StreamPtr(this), &write_room_});
}

void Stream::notice_read() {
  read_pending_ = false;
  if (events_ != nullptr && socket_.is_open()) events_->on_readable();
}

void Stream::notice_write() {
  write_pending_ = false;
  if (events_ != nullptr && socket_.is_open()) events_->on_writable();
}

IoResult Stream::read(char* to, std::size_t size) {
  for (;;) {
    const ssize_t got = ::recv(socket_.native_handle(), to, size, 0);
    if (got > 0) return {IoResult::Status::kOk, static_cast<std::size_t>(got), {}};
    if (got == 0) return {IoResult::Status::kEnd, 0, {}};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Status::kWouldBlock, 0, {}};
    return {IoResult::Status::kError, 0, {errno, std::system_category()}};
  }
}

IoResult Stream::write(std::string_view first, std::string_view second) {
  for (;;) {
    ssize_t sent = 0;
    if (second.empty()) {
      sent = ::send(socket_.native_handle(), first.data(), first.size(), MSG_NOSIGNAL);
    } else {
      iovec parts[2] = {{const_cast<char*>(first.data()), first.size()},
                        {const_cast<char*>(second.data()), second.size()}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
    }
    if (sent >= 0) return {IoResult::Status::kOk, static_cast<std::size_t>(sent), {}};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Status::kWouldBlock, 0, {}};
    return {IoResult::Status::kError, 0, {errno, std::system_category()}};
  }
}

bool Stream::readable_or_ended() {
  char byte = 0;
  const ssize_t got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void Stream::shutdown_send() {
  std::error_code ignored;
  socket_.shutdown(TcpSocket::shutdown_send, ignored);
}

void Stream::close() {
  events_ = nullptr;
  std::error_code ignored;
  socket_.close(ignored);
}

void Stream::reset() {
  std::error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

}  // namespace pointsman
