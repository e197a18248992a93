#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/chunk_scanner.h"
#include "http/head_parser.h"
#include "net/http_server.h"

namespace pointsman {

// What the copies of one HttpResponse share. It knows its connection until either ends.
struct HttpResponse::State {
  HttpConnection* connection = nullptr;
  std::function<void()> on_gone;
  std::function<void()> on_drained;

  ~State();
};

// One connection of HttpServer.
//
//   kHead ─ head complete ─▶ kBody ─ body complete ─▶ kHandling ─ answer complete ─▶ kHead
//   kHandling ─ client gone ─▶ kClosed (on_gone)
//   any ─ refused, or no keep-alive ─▶ kLingering ─ client has closed, or 2 s ─▶ kClosed
//
// Lingering: after the last answer our side is shut, and what the client still sends is thrown
// away; a plain close would turn unread bytes into a RST that can overtake the answer.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpServer& server, asio::ip::tcp::socket socket);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void start();
  // Closes the socket and lets go of the server; harmless when repeated.
  void close();
  void reset();
  void close_if_idle();
  // The server goes: no callback any more.
  void abandon();

  // For HttpResponse.
  void send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers);
  void begin(int status, std::string_view content_type, const HttpHeaders& headers);
  bool write(std::string_view bytes);
  void end();
  bool write_raw(std::string_view bytes);
  void close_after_write();
  void drop_response();  // the last copy of the handle went without an answer
  [[nodiscard]] std::size_t unsent() const { return out_.size() - sent_; }

 private:
  enum class Phase : std::uint8_t { kHead, kBody, kHandling, kLingering, kClosed };

  void wait_readable();
  void on_readable(std::error_code error);
  void on_end_of_input();
  void process();
  bool read_head();
  bool read_body();
  void hand_over();
  void refuse(int status, std::string_view reason);
  void send_error(int status, std::string_view message);
  void append_head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::string_view framing);
  void answer_complete();
  void flush();
  void on_flushed();
  void detach_response();
  void on_timeout();
  void arm_for_phase();

  HttpServer* server_;  // null once closed
  asio::ip::tcp::socket socket_;
  Phase phase_ = Phase::kHead;

  std::string in_;
  RequestHeadParser parser_;
  HttpRequest request_;
  ChunkScanner chunks_;
  bool chunked_body_ = false;
  std::size_t body_left_ = 0;
  bool reading_ = false;
  bool processing_ = false;
  bool input_ended_ = false;

  HttpResponse::State* response_ = nullptr;  // of the request being handled
  bool head_request_ = false;
  bool http10_ = false;
  bool keep_alive_ = true;
  bool begun_ = false;    // begin() was called
  bool no_body_ = false;  // the answer's body is dropped
  bool chunked_answer_ = false;
  bool over_high_water_ = false;

  std::string out_;  // answer bytes; the first sent_ of them are with the kernel
  std::size_t sent_ = 0;
  bool writing_ = false;  // waits for the socket to become writable
  bool broken_ = false;

  Timer timer_;
  Timer write_timer_;
};

}  // namespace pointsman
