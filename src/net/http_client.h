#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/intrusive.h"
#include "base/time.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "net/tls_context.h"
#include "net/tls_session.h"

namespace pointsman {

// A GET for the feeds: probes, scrapes, model lists.
struct HttpGetRequest {
  std::string host;  // name or IP literal
  std::uint16_t port = 80;
  std::string authority;  // the Host header; empty: host:port
  std::string target = "/";
  std::string bearer;                          // Authorization: Bearer …; empty: none
  Duration timeout = std::chrono::seconds(5);  // for all of it, the name's look-up included
  std::size_t max_body = 4 * 1024 * 1024;
  std::shared_ptr<const TlsClient> tls;  // null: plain HTTP
  std::string tls_name;                  // that the server's certificate must have
};

// How a GET ended. Each way means something else for a replica's health.
struct HttpGetResult {
  enum class Outcome : std::uint8_t {
    kAnswered,        // status and body are whole
    kRefused,         // nothing listens there
    kReset,           // RST before any byte of the answer
    kClosed,          // FIN before any byte of the answer
    kUnreachable,     // no connection for another reason; TLS failed
    kUnresolved,      // the name has no address
    kTimedOut,        // not a byte of the answer in time
    kTimedOutMidway,  // some of it came in time
    kBroken,          // cut after its first byte, or malformed
    kTooLarge,        // the body is larger than max_body
    kOwnLack,         // no descriptor, port or memory here: nothing is known of the other side
  };
  Outcome outcome = Outcome::kBroken;
  int status = 0;  // also where only the body failed
  std::string content_type;
  std::string body;
  std::string detail;  // for a person: "503", "connection refused"

  [[nodiscard]] bool answered(int with) const {
    return outcome == Outcome::kAnswered && status == with;
  }
};

// One GET at a time, each on a connection of its own: a probe on a kept connection would not notice
// that the replica no longer takes new ones. For the reactor's thread; destroying it cancels.
class HttpGet {
 public:
  using Callback = std::function<void(HttpGetResult)>;

  HttpGet(Reactor& reactor, Resolver& resolver);
  ~HttpGet();
  HttpGet(const HttpGet&) = delete;
  HttpGet& operator=(const HttpGet&) = delete;

  // Calls back exactly once, unless cancelled; never from inside this call. A GET that is still
  // running is cancelled.
  void start(HttpGetRequest request, Callback callback);
  void cancel();
  [[nodiscard]] bool running() const;

 private:
  class Operation;

  Reactor& reactor_;
  Resolver& resolver_;
  // Of the server that was asked last.
  IntrusivePtr<TlsSession> session_{new TlsSession};
  std::string host_;
  std::uint16_t port_ = 0;
  std::shared_ptr<Operation> operation_;
};

}  // namespace pointsman
