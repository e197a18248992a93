#include "proxy/tls_arrivals.h"

#include <string>
#include <utility>

#include <unistd.h>

#include "http/openai_error.h"
#include "net/tls_error.h"

namespace pointsman {
namespace {

// A handshake takes two round trips; one that is still there after so long may have to go.
constexpr Duration kFairShare = std::chrono::seconds(1);

std::string plain_http_answer() {
  std::string answer;
  append_error_response({.status = 400,
                         .type = "invalid_request_error",
                         .message = "this port speaks TLS: ask it by https:// and not http://",
                         .kind = "plain_http"},
                        "", false, false, answer);
  return answer;
}

}  // namespace

class TlsArrivals::Arrival final : public Stream::Events, public ListLink<Arrival> {
 public:
  Arrival(TlsArrivals& arrivals, int socket, const asio::ip::tcp::endpoint& its_client,
          ConnectionPlace its_place)
      : stream(
            new TlsStream(arrivals.reactor_.poller(), socket, arrivals.server_, arrivals.turns_)),
        client(its_client),
        place(std::move(its_place)),
        since(arrivals.reactor_.coarse_now()),
        timer([this] { arrivals_.fail(*this, "timeout"); }),
        arrivals_(arrivals) {
    stream->attach(*this);
  }
  ~Arrival() { stream->detach(); }

  const IntrusivePtr<TlsStream> stream;
  const asio::ip::tcp::endpoint client;
  ConnectionPlace place;
  const TimePoint since;
  Timer timer;

 private:
  void on_readable() override {}
  void on_writable() override { arrivals_.decided(*this); }

  TlsArrivals& arrivals_;
};

TlsArrivals::TlsArrivals(Reactor& reactor, TlsServer& server, ProxyMetrics::Shard& metrics,
                         const Options& options, Arrived arrived)
    : reactor_(reactor),
      server_(server),
      metrics_(metrics),
      options_(options),
      arrived_(std::move(arrived)) {}

TlsArrivals::~TlsArrivals() {
  close();
}

void TlsArrivals::add(int socket, const asio::ip::tcp::endpoint& client, ConnectionPlace place) {
  if (count_ >= options_.most) {
    Arrival& oldest = *arrivals_.front();
    if (reactor_.coarse_now() - oldest.since < kFairShare) {
      metrics_.tls_failures.add("too_many");
      ::close(socket);
      return;
    }
    fail(oldest, "too_many");
  }
  auto* const arrival = new Arrival(*this, socket, client, std::move(place));
  arrivals_.push_back(*arrival);  // the list has it now
  ++count_;
  metrics_.client_connections.add();
  reactor_.timers().arm_at(arrival->timer,
                           reactor_.coarse_now() + options_.limit + TimerWheel::kTick);
  arrival->stream->want_write();
}

void TlsArrivals::close() {
  while (Arrival* arrival = arrivals_.front()) {
    arrival->stream->close();
    remove(*arrival);
  }
}

void TlsArrivals::decided(Arrival& arrival) {
  const std::error_code error = arrival.stream->connect_error();
  if (error) {
    if (is_plain_http(error)) arrival.stream->answer_in_plain(plain_http_answer());
    return fail(arrival, tls_failure_word(error));
  }
  (arrival.stream->resumed() ? metrics_.tls_resumed : metrics_.tls_full).add();
  const IntrusivePtr<TlsStream> stream = arrival.stream;
  const asio::ip::tcp::endpoint client = arrival.client;
  ConnectionPlace place = std::move(arrival.place);
  remove(arrival);
  arrived_(stream, client, std::move(place));
}

void TlsArrivals::fail(Arrival& arrival, std::string_view why) {
  metrics_.tls_failures.add(why);
  arrival.stream->close();
  remove(arrival);
}

void TlsArrivals::remove(Arrival& arrival) {
  --count_;
  metrics_.client_connections.sub();
  delete &arrival;
}

}  // namespace pointsman
