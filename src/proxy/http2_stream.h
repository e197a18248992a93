#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/intrusive.h"
#include "http/chunk_scanner.h"
#include "http/http2_head.h"
#include "net/reactor.h"
#include "net/stream.h"

namespace pointsman {

class Http2Connection;

// One request of an HTTP/2 connection, as a stream of bytes that carries exactly one request and
// its answer in the form of HTTP/1.1: what reads it is the same code that serves a socket.
//
// Reading gives the head, then the body, by its length or in chunks, with its trailers. Then
// nothing comes: an end is seen where the client has reset the stream or the connection is lost
// (it has left), and once the answer has been written whole (there is no second request).
//
// Writing takes the answer's head, interim ones before it, and its body, whose framing is removed.
// No more is taken than may go out at once, by the client's windows and by the room that the
// connection has: what is not taken stays with the writer, as with a socket, and nothing of an
// answer waits here. A window that opens again makes the stream writable.
//
// The answer's end becomes END_STREAM. Closing before it, and reset(), become
// RST_STREAM(INTERNAL_ERROR): nobody may take what was sent for the whole.
//
// What is held: the request's head, and of its body what the client's window allows and has not
// been read (Http2Connection::kStreamWindow at most).
class Http2Stream final : public Stream, public ListLink<Http2Stream> {
 public:
  Http2Stream(Http2Connection& connection, Poller& poller, std::int32_t id);

  IoResult read(char* to, std::size_t size) override;
  IoResult write(std::string_view first, std::string_view second = {}) override;
  void shutdown_send() override;
  void close() override;
  void reset() override;

  // --- for the connection; none of these calls back ---------------------------------------------
  [[nodiscard]] std::int32_t id() const { return id_; }

  // The request's head, in the form of HTTP/1.1.
  void take_head(std::string head, Http2Head::Body body, bool asks_for_head);
  void take_data(std::string_view data);
  void take_trailers(std::string_view lines) { request_trailers_ = lines; }
  void request_ended();

  // HTTP/2 knows the stream no more: it is closed on both sides, or was reset.
  void forget();
  // The connection is lost.
  void lose();
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] bool is_gone() const { return gone_; }
  // More of the answer may be written.
  void may_write();
  // Its writer was told that the connection has no room.
  [[nodiscard]] bool waits_for_room() const { return waits_for_room_; }
  // An answer, interim or not, has begun.
  [[nodiscard]] bool answered() const { return answered_; }

  // What is being written at this moment, and whether the answer ends with it.
  [[nodiscard]] std::string_view outgoing() const { return outgoing_; }
  void outgoing_sent(std::size_t bytes) { outgoing_.remove_prefix(bytes); }
  [[nodiscard]] bool ends_with_outgoing() const { return answer_ended_; }
  // As lines; empty where there are none. Of a complete answer.
  [[nodiscard]] std::string_view answer_trailers() const { return answer_trailers_; }
  // END_STREAM has been written down.
  void end_sent();

 private:
  // Of the answer.
  enum class Part : std::uint8_t { kHead, kLength, kChunked, kUntilClose, kDone };

  ~Http2Stream() override = default;
  void on_ready(std::uint32_t events) override;

  std::size_t take(std::string_view bytes);
  std::size_t take_answer_head(std::string_view bytes);
  std::size_t take_answer_body(std::string_view bytes);
  void send_data(std::string_view data);
  [[nodiscard]] bool next_framing();
  void release_input();
  void answer_complete();
  void stop_request();
  void reset_now();
  void gone();
  void leave();

  Http2Connection* connection_;
  const std::int32_t id_;

  // --- the answer
  Part part_ = Part::kHead;
  bool answered_ = false;
  bool answer_ended_ = false;  // all of it has been taken
  bool end_sent_ = false;
  bool waits_for_room_ = false;
  bool known_ = true;  // to HTTP/2
  bool gone_ = false;  // the client has reset it, or it is cut
  std::string_view outgoing_;
  std::uint64_t left_ = 0;  // of a stated length
  ChunkScanner chunks_;
  std::string answer_head_;  // where it came in pieces
  std::string answer_trailers_;

  // --- the request
  bool chunked_ = false;
  bool asks_for_head_ = false;
  bool request_done_ = false;  // END_STREAM has come
  bool chunk_open_ = false;    // its line end is still to come
  bool last_chunk_ = false;    // the end has been put into framing_
  std::string framing_;        // the head, then the framing between what lies in data_
  std::size_t framing_at_ = 0;
  std::string data_;
  std::size_t data_at_ = 0;
  std::size_t chunk_left_ = 0;  // of data_, announced by framing_
  std::string request_trailers_;

  Timer end_timer_;  // a whole answer whose end the client's window does not let out
};

}  // namespace pointsman
