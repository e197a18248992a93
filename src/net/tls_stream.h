#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "base/intrusive.h"
#include "net/poller.h"
#include "net/socket_stream.h"
#include "net/tls_context.h"
#include "net/tls_session.h"

namespace pointsman {

// Shares a thread's time between handshakes, of which a flood may come, and the streams that it
// serves: so many steps in one round of its poller, the others wait for the next.
struct TlsTurns {
  static constexpr int kPerRound = 8;
  std::uint64_t round = 0;
  int taken = 0;
};

// One TLS connection over TCP. Nothing can be read or written until its handshake has ended, which
// goes on by itself once the stream is made: want_write() tells when it is decided, and
// connect_error() how.
//
// What differs from a plain stream:
//   - read() ends with kEnd only where the other side said so (close_notify). A connection that
//     ends without it was cut, perhaps by someone in between, and gives kError.
//   - After kWouldBlock, and after a write that took a part, the next write must begin with the
//     bytes that were not taken: some of them may be encrypted already.
//   - ended() is known of the connection below; a close_notify shows when it is read.
//
// Silent streams hold no buffers. Small parts of a write go into one record.
class TlsStream final : public SocketStream {
 public:
  // A client's connection: takes the connected, non-blocking socket. The state of TLS is made when
  // the first byte comes: a client that sends none costs no more than its socket. `turns`: of the
  // thread.
  TlsStream(Poller& poller, int socket, TlsServer& server, TlsTurns& turns);
  // A connection to be opened with connect(), to a server of that name or address.
  TlsStream(Poller& poller, std::shared_ptr<const TlsClient> client, std::string name,
            IntrusivePtr<TlsSession> session);

  // Of connecting and of the handshake.
  [[nodiscard]] std::error_code connect_error() const override;

  IoResult read(char* to, std::size_t size) override;
  IoResult write(std::string_view first, std::string_view second = {}) override;
  // Sends close_notify, then ends the sending side.
  void shutdown_send() override;
  void close() override;
  void reset() override;

  [[nodiscard]] bool handshaking() const { return phase_ == Phase::kHandshake; }
  // A byte of the handshake has come, or been sent.
  [[nodiscard]] bool begun() const { return ssl_ != nullptr; }
  // Chosen by ALPN: "h2", "http/1.1"; empty: the client did not ask.
  [[nodiscard]] std::string_view protocol() const;
  [[nodiscard]] bool resumed() const;

  // For a client that spoke something else: sends it as it is. After the handshake has failed.
  void answer_in_plain(std::string_view answer);

 private:
  enum class Phase : std::uint8_t { kHandshake, kOpen, kFailed };

  ~TlsStream() override { TlsStream::close(); }
  void on_ready(std::uint32_t events) override;
  bool begin();
  bool attach_transport();
  void handshake();
  void fail(const std::error_code& error);
  [[nodiscard]] std::error_code error_of(int why) const;
  [[nodiscard]] IoResult failed() const { return {IoResult::Status::kError, 0, error_}; }
  bool notify();

  // How OpenSSL moves its bytes.
  static const BIO_METHOD* transport();
  static int receive(BIO* bio, char* to, int size);
  static int send(BIO* bio, const char* from, int size);
  static long control(BIO* bio, int command, long number, void* pointer);

  Phase phase_ = Phase::kHandshake;
  // Of the socket: it holds nothing more to be read; it takes nothing more. An edge ends either.
  bool drained_ = true;
  bool full_ = false;
  bool read_waits_ = false;    // reading goes on when the socket takes bytes
  bool write_waits_ = false;   // writing goes on when bytes have come
  bool record_waits_ = false;  // of an encrypted record, a part has not been taken yet
  bool notify_waits_ = false;  // close_notify is to be sent when the socket takes bytes
  bool notified_ = false;      // close_notify has been sent
  bool transport_ended_ = false;
  SSL* ssl_ = nullptr;
  TlsServer* const server_ = nullptr;
  const std::shared_ptr<const TlsClient> client_;
  TlsTurns* const turns_ = nullptr;
  std::string name_;
  IntrusivePtr<TlsSession> session_;
  std::error_code error_;
  std::error_code transport_error_;
};

}  // namespace pointsman
