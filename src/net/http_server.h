#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/asio.h"
#include "net/reactor.h"

namespace pointsman {

// Name and value of headers, in the order in which they are sent or came.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// A request with its whole body, de-chunked.
struct HttpRequest {
  std::string method;
  std::string target;   // as it came, with the query
  std::string path;     // undecoded, without the query
  std::string query;    // without the question mark
  HttpHeaders headers;  // names as they were spelt
  std::string body;
  asio::ip::tcp::endpoint client;

  // The first header of that name, in any case of letters; empty where there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
};

class HttpConnection;

// The answer to one request: a handle that may be copied and kept, and used at once or later.
//
// Either send(), or begin() with any number of write() and an end(). An answer that is left without
// any of them when the last copy of the handle goes becomes a 500. Once the client has gone, or the
// server was destroyed, every call is harmless and does nothing.
//
// HEAD requests and statuses without a body are handled here: the body is dropped.
// For the reactor's thread only.
class HttpResponse {
 public:
  // The whole answer. `content_type` may be empty where there is no body.
  void send(int status, std::string_view content_type, std::string_view body,
            const HttpHeaders& headers = {}) const;

  // Sends the head now; the body follows by write(): chunked, or until close for HTTP/1.0 clients.
  void begin(int status, std::string_view content_type, const HttpHeaders& headers = {}) const;

  // Adds to the body, as one chunk. False: the client is slow and more than the high-water mark is
  // unsent; the caller should wait for on_drained(). The bytes are taken in either case.
  bool write(std::string_view bytes) const;

  // Ends the body that begin() started.
  void end() const;

  // Called once when the client closes (also one direction only, as the engines have it) or breaks
  // the connection before the answer is complete. Never from inside a call of this class.
  void on_gone(std::function<void()> callback) const;

  // Called each time that the unsent bytes have fallen below half the high-water mark after write()
  // had returned false.
  void on_drained(std::function<void()> callback) const;

  [[nodiscard]] bool gone() const;           // or the answer is complete
  [[nodiscard]] std::size_t unsent() const;  // bytes that the kernel has not taken yet

  // For tests and simulated faults.
  void reset() const;                            // RST now, unsent bytes are lost
  void close() const;                            // FIN after what was written, whatever is missing
  bool write_raw(std::string_view bytes) const;  // past head and framing; then reset() or close()

 private:
  friend class HttpConnection;
  struct State;
  std::shared_ptr<State> state_;
};

// A small HTTP/1.1 server for the admin and observe ports and for the simulated replica:
// keep-alive, HEAD, Expect: 100-continue, chunked bodies, HTTP/1.0. Requests of one connection are
// answered in order; one is handled at a time. What the head parser refuses is answered with 400 or
// 431 and a close; a body over the limit with 413; both in OpenAI's form of errors.
class HttpServer {
 public:
  struct Options {
    std::size_t max_body = 16 * 1024 * 1024;
    std::size_t max_connections = 4096;  // more are closed at once; 0: no limit
    std::size_t high_water = 256 * 1024;
    Duration head_timeout = std::chrono::seconds(10);        // from the first byte to the last
    Duration body_gap = std::chrono::seconds(60);            // between bytes of a request body
    Duration keep_alive_timeout = std::chrono::seconds(75);  // between requests
    Duration write_stall = std::chrono::minutes(5);          // without a byte taken by the client
    std::string server_name;                                 // the Server header; empty: none
  };
  using Handler = std::function<void(HttpRequest request, HttpResponse response)>;

  HttpServer(Reactor& reactor, Options options, Handler handler);
  ~HttpServer();  // closes everything; on_gone() is not called any more
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Starts to accept. Port 0: any free one, see port(). `address` is an IP address. Before run() or
  // on the reactor's thread.
  Result<void> listen(std::string_view address, std::uint16_t port);
  [[nodiscard]] std::uint16_t port() const { return port_; }

  // Stops accepting: new connections are refused. Open ones go on; idle ones are closed.
  void stop_listening();

  // RST on every connection and no more accepting, as if the process had been killed.
  void cut_all();

  [[nodiscard]] std::size_t connections() const { return connections_.size(); }

 private:
  friend class HttpConnection;

  void accept();

  Reactor& reactor_;
  const Options options_;
  const Handler handler_;
  asio::ip::tcp::acceptor acceptor_;
  std::uint16_t port_ = 0;
  Timer accept_again_;  // after the process ran out of descriptors
  std::unordered_set<std::shared_ptr<HttpConnection>> connections_;
  // Guards callbacks that are still queued in the reactor when the server goes.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pointsman
