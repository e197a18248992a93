#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "access/connection_counts.h"
#include "base/intrusive.h"
#include "base/time.h"
#include "net/reactor.h"
#include "net/tls_stream.h"
#include "telemetry/proxy_metrics.h"

namespace pointsman {

// One thread's clients whose TLS handshake is under way. Each has as long for it as for a request's
// head. Their number is bounded: when it is reached, the oldest one goes where it has had its time,
// else the newest.
//
// A client that speaks HTTP without TLS is told so, in HTTP.
class TlsArrivals {
 public:
  // The handshake has ended well.
  using Arrived = std::function<void(IntrusivePtr<TlsStream> stream,
                                     const asio::ip::tcp::endpoint& client, ConnectionPlace place)>;

  struct Options {
    Duration limit = std::chrono::seconds(10);  // of one handshake
    std::size_t most = 4096;                    // at a time
  };

  TlsArrivals(Reactor& reactor, TlsServer& server, ProxyMetrics::Shard& metrics,
              const Options& options, Arrived arrived);
  ~TlsArrivals();
  TlsArrivals(const TlsArrivals&) = delete;
  TlsArrivals& operator=(const TlsArrivals&) = delete;

  // Takes a connection that was just accepted.
  void add(int socket, const asio::ip::tcp::endpoint& client, ConnectionPlace place);
  // Closes all.
  void close();

 private:
  class Arrival;

  void decided(Arrival& arrival);
  void fail(Arrival& arrival, std::string_view why);
  void remove(Arrival& arrival);

  Reactor& reactor_;
  TlsServer& server_;
  ProxyMetrics::Shard& metrics_;
  const Options options_;
  const Arrived arrived_;
  TlsTurns turns_;
  IntrusiveList<Arrival, Arrival> arrivals_;  // in the order of their coming
  std::size_t count_ = 0;
};

}  // namespace pointsman
