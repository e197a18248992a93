#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "access/connection_counts.h"
#include "base/intrusive.h"
#include "http/head_parser.h"
#include "http/http2_head.h"
#include "net/asio.h"
#include "net/reactor.h"
#include "net/stream.h"
#include "proxy/allowance.h"
#include "proxy/http2_stream.h"

struct nghttp2_session;

namespace pointsman {

class Http2Callbacks;
class ProxyShard;

// One client's connection that speaks HTTP/2 (RFC 9113). nghttp2 reads and writes the frames; each
// request is an Http2Stream, which a ClientConnection of its own serves.
//
// All that the streams write in one turn of the reactor goes out together, at its end.
//
// What a client can make us hold: kMaxStreams requests, each with its head and kStreamWindow of its
// body, and no more than kConnectionWindow of all bodies; kOutLimit of frames not yet sent, and
// about 20 KiB for nghttp2's own state with both of its header tables.
//
// What serves nobody is counted (proxy/allowance.h) and ends the connection with GOAWAY
// (ENHANCE_YOUR_CALM) once it is too much; so does what the frames' rules forbid, with its own
// code. docs/http2.md has the list.
//
// For the shard's thread only. Closing is told to the shard by ProxyShard::http2_closed().
class Http2Connection final : public RefCounted<Http2Connection>,
                              public Stream::Events,
                              public Poller::Source,
                              public ListLink<Http2Connection> {
 public:
  static constexpr std::uint32_t kMaxStreams = 256;
  static constexpr std::size_t kStreamWindow = std::size_t{256} << 10;
  static constexpr std::size_t kConnectionWindow = std::size_t{4} << 20;
  static constexpr std::size_t kOutLimit = std::size_t{64} << 10;

  // The first bytes of a connection, by which a client says that it speaks HTTP/2 (RFC 9113, 3.4).
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

  // `place`: held until it is closed.
  Http2Connection(ProxyShard& shard, StreamPtr transport, const asio::ip::tcp::endpoint& client,
                  ConnectionPlace place);

  // `first`: what has been read of the transport, from its first byte on.
  void start(std::string_view first);
  // GOAWAY: what has been asked for is answered, then the connection closes.
  void drain();
  // Sends what may go at once, and closes; running streams are lost.
  void close_now();
  [[nodiscard]] bool idle() const { return stream_count_ == 0; }

  // --- for the streams --------------------------------------------------------------------------
  // Bytes that the stream may write now: by the connection's room, and for data by the windows.
  [[nodiscard]] std::size_t room(const Http2Stream& stream, bool data) const;
  // The stream is told once there is room. Returns whether it is the connection that has none.
  [[nodiscard]] bool await_room(const Http2Stream& stream);
  [[nodiscard]] ResponseHeadParser& response_parser() { return response_parser_; }
  // `last`: no body follows.
  void submit_head(Http2Stream& stream, const ResponseHead& head, bool last);
  // Writes down stream.outgoing(), which fits into room(), and the end where it is one.
  void send_data(Http2Stream& stream);
  // The stream's reader has taken these bytes of data: as many more may come.
  void consumed(const Http2Stream& stream, std::size_t bytes);
  enum class Why : std::uint8_t {
    kCut,        // the answer stays unfinished
    kNotNeeded,  // the answer is whole, the rest of the request is not wanted
  };
  void reset_stream(Http2Stream& stream, Why why);
  void await_end(Timer& timer);
  void flush_soon();

 private:
  friend class RefCounted<Http2Connection>;
  friend class Http2Callbacks;
  // What the time-out that is armed is for.
  enum class Wait : std::uint8_t { kNothing, kSettings, kHead, kIdle, kLinger };

  ~Http2Connection();
  void on_unreferenced() { delete this; }

  void on_readable() override;
  void on_writable() override;
  void on_ready(std::uint32_t events) override;
  void on_timeout();
  void on_stall();

  void feed(std::string_view bytes);
  void start_streams();
  void update_timer();
  bool write_frames(bool all);
  void flush();
  [[nodiscard]] bool over() const;
  [[nodiscard]] bool write_out();
  void wake_writers();
  void end_with(std::uint32_t code);
  void last_goaway();
  void linger();
  void lost();
  void drop_streams();

  // Of frames, for Http2Callbacks.
  void frame_begins(std::uint8_t type, std::uint8_t flags, std::size_t length);
  void spend(std::int64_t amount, std::string_view kind);
  void misuse(std::string_view kind);
  [[nodiscard]] static std::string_view broken_rule(bool flood);
  void head_begins(std::int32_t id);
  void head_complete(Http2Stream& stream, bool ended);
  void stream_ended(Http2Stream& stream);
  void refused();

  ProxyShard& shard_;
  StreamPtr transport_;
  nghttp2_session* session_ = nullptr;
  std::string out_;  // frames on their way
  std::size_t out_at_ = 0;
  bool any_waits_for_room_ = false;
  bool lingering_ = false;

  IntrusiveList<Http2Stream, Http2Stream> streams_;  // each holds a reference
  std::size_t stream_count_ = 0;
  std::vector<IntrusivePtr<Http2Stream>> new_streams_;  // their requests have not begun

  Http2Head head_;          // being received
  bool in_head_ = false;    // its last frame has not come
  bool malformed_ = false;  // the head
  std::size_t continuations_ = 0;
  ResponseHeadParser response_parser_;
  std::string names_;  // of the head that is being submitted

  std::string_view misuse_;  // the connection ends for it
  Allowance resets_;         // streams ended before their answer began
  Allowance controls_;       // frames that carry no request and no data

  bool settings_seen_ = false;
  bool draining_ = false;
  bool last_goaway_sent_ = false;
  Wait waiting_for_ = Wait::kNothing;
  const asio::ip::tcp::endpoint client_;
  ConnectionPlace place_;
  std::uint32_t requests_ = 0;
  Timer timer_;
  Timer stall_timer_;
  Timer drain_timer_;
};

}  // namespace pointsman
