#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "access/connection_counts.h"
#include "base/intrusive.h"
#include "net/reactor.h"
#include "net/stream.h"
#include "proxy/input_buffer.h"

namespace pointsman {

class Exchange;
class ProxyShard;

// One client's connection: reads request heads, hands each to an exchange, and writes what the
// exchange has for the client. One request is served at a time; pipelined ones wait in the input
// buffer.
//
//   kIdle ─ first byte ─▶ kHead ─ head complete ─▶ kExchange ─ answer complete ─▶ kIdle
//   kExchange ─ answer complete, some of it unsent ─▶ kFlushing ─ all taken ─▶ kIdle or kLingering
//   any ─ to be closed, input not read to its end ─▶ kLingering ─ client has closed, 2 s ─▶ kClosed
//   any ─ client gone, time-out ─▶ kClosed
//
// Lingering: our side is shut and what the client still sends is thrown away; a plain close would
// answer those bytes with a RST that can overtake the answer.
//
// Bytes that the socket does not take wait in `unsent`; the exchange then stops reading its
// replica, so that at most one read's worth is kept for a client that stands still.
class alignas(64) ClientConnection final : public RefCounted<ClientConnection>,
                                           public Stream::Events,
                                           public ListLink<ClientConnection> {
 public:
  ClientConnection(ProxyShard& shard, StreamPtr stream, const asio::ip::tcp::endpoint& client);

  // Until it is closed. Streams of one connection that are served as connections hold none.
  void hold(ConnectionPlace place) { place_ = std::move(place); }
  void start();

  // --- for the exchange ---------------------------------------------------------------------
  [[nodiscard]] InputBuffer& input() { return input_; }
  [[nodiscard]] Stream& stream() { return *stream_; }
  [[nodiscard]] ProxyShard& shard() { return shard_; }
  // Whether the client is of a network that is trusted.
  [[nodiscard]] bool trusted() const;
  // Whether the request that is served is the last one of its connection.
  [[nodiscard]] bool last_request() const;
  // As text; made once, since every request of the connection is logged with it.
  [[nodiscard]] std::string_view client_address();

  // Sends `first` and then `second`. What the socket does not take is kept. Never calls back; look
  // at blocked() and broken() afterwards.
  void send(std::string_view first, std::string_view second = {});
  // The client has not taken everything yet; Exchange::on_client_drained() tells when it has.
  [[nodiscard]] bool blocked() const { return !unsent_.empty(); }
  [[nodiscard]] std::size_t unsent_bytes() const { return unsent_.size() - unsent_at_; }
  // The connection is of no use any more: a write has failed.
  [[nodiscard]] bool broken() const { return broken_; }

  // Asks for Exchange::on_client_readable().
  void want_read() { stream_->want_read(); }
  // Arms the time-out for bytes of the request's body; zero disarms.
  void expect_body_within(Duration limit);

  enum class Ending : std::uint8_t {
    kKeep,   // the next request may come
    kClose,  // close once everything is sent
    kReset,  // RST: nobody may take what was sent for the whole answer
  };
  // The exchange is over; it must not be touched by its caller after this. `consumed` bytes of the
  // input were its request.
  void exchange_ended(Ending ending, std::size_t consumed);

  // --- for the shard --------------------------------------------------------------------------
  [[nodiscard]] bool idle() const { return phase_ == Phase::kIdle; }
  [[nodiscard]] bool serving() const { return phase_ == Phase::kExchange && exchange_ != nullptr; }
  [[nodiscard]] Exchange* exchange() { return exchange_; }
  // Closes at once; a running exchange is told that its client has gone.
  void close_now();

 private:
  friend class RefCounted<ClientConnection>;
  enum class Phase : std::uint8_t { kIdle, kHead, kExchange, kFlushing, kLingering, kClosed };

  ~ClientConnection();
  void on_unreferenced() { delete this; }

  void on_readable() override;
  void on_writable() override;
  void on_timeout();
  void on_stall();  // the client has taken no byte for too long

  void read_head();
  void process();
  bool parse_head();
  void refuse(int status, std::string_view kind, std::string_view reason);
  void discard_input();
  void flush();
  void after_answer();
  void linger();
  void become_idle();
  void await_request();
  void closed();
  void release_exchange();

  ProxyShard& shard_;
  // What passing on a piece of an answer touches stands first, in one cache line.
  StreamPtr stream_;
  std::string unsent_;
  Phase phase_ = Phase::kIdle;
  Ending ending_ = Ending::kKeep;
  bool broken_ = false;
  bool processing_ = false;
  std::uint32_t requests_ = 0;
  const asio::ip::tcp::endpoint client_;
  std::string client_text_;
  ConnectionPlace place_;
  InputBuffer input_;
  std::size_t unsent_at_ = 0;
  Exchange* exchange_ = nullptr;  // from the first byte of a request to the end of its answer
  Timer timer_;                   // of the phase
  Timer stall_timer_;             // armed while bytes are unsent
};

}  // namespace pointsman
