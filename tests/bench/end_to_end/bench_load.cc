// A load generator for measuring proxies: one thread, epoll. It prints lines of JSON, the last with
// all counts; anything but a whole answer with status 200 and all its events is an error.
//
//   bench_load --port P [--connections N] [--seconds S]     each connection asks again at once
//   bench_load --port P --rate R [--seconds S]              R requests a second at random times,
//                                                           timed from when each was due
//   bench_load --port P --hold N --ramp R [--seconds S]     N streams, opened at R a second; a line
//                                                           when all have had an event, a second
//                                                           one after S seconds more
//   with all: [--prompt-bytes B] [--families F] [--stream 1 --events E] [--tls 1]

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "prompt.h"

namespace pointsman::bench {
namespace {

constexpr std::chrono::milliseconds kClosedRamp{200};
constexpr std::size_t kMostOpen = 1000;              // connections of the open loop
constexpr std::chrono::seconds kLongestSilence{10};  // after which what is under way is lost
constexpr long kMostErrors = 1000;

struct Options {
  int port = 0;
  std::size_t connections = 32;
  double seconds = 3;
  double rate = 0;
  std::size_t hold = 0;
  double ramp = 1000;
  bool tls = false;
  int events = 0;  // of each stream, its last `[DONE]` included; 0: not checked
  Prompts prompts;
};

Clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Connection {
  int fd = -1;
  SSL* tls = nullptr;       // none: plain
  std::uint64_t index = 0;  // among all that were opened
  bool busy = false;
  bool seen_event = false;
  bool awaits_room = false;
  Answer answer;
  std::string out;
  std::size_t sent = 0;
  Clock::time_point due;  // when its request was to be sent
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), epoll_(epoll_create1(0)) {
    if (!options_.tls) return;
    tls_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(tls_, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(tls_, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_mode(tls_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  }

  int run() {
    start_ = Clock::now();
    if (options_.hold > 0) {
      run_held();
    } else if (options_.rate > 0) {
      run_open();
    } else {
      run_closed();
    }
    if (busy_ > 0) fail(busy_, "not answered in time");
    print_result();
    return errors_ == 0 ? 0 : 1;
  }

 private:
  void run_closed() {
    end_ = start_ + seconds_of(options_.seconds);
    again_ = true;
    const std::size_t count = options_.connections;
    std::size_t opened = 0;
    // Answers under way at the end are read whole, so that their events count.
    while (opened < count || busy_ > 0) {
      // Connections open over the first kClosedRamp, so that streams do not tick in step.
      for (; opened < count && Clock::now() >= start_ + kClosedRamp * opened / count; ++opened)
        ask(open(), Clock::now());
      const bool ramping = opened < count;
      if (!turn(ramping ? std::chrono::milliseconds(1) : kLongestSilence) && !ramping) break;
    }
  }

  void run_open() {
    end_ = start_ + seconds_of(options_.seconds);
    std::mt19937_64 random(1);
    std::exponential_distribution<double> gap(options_.rate);
    Clock::time_point next = start_ + seconds_of(gap(random));
    std::deque<Clock::time_point> waiting;
    while (true) {
      const Clock::time_point now = Clock::now();
      for (; next <= now && next < end_; next += seconds_of(gap(random))) waiting.push_back(next);
      while (!waiting.empty() && (!idle_.empty() || open_ < kMostOpen)) {
        Connection* connection = nullptr;
        if (idle_.empty()) {
          connection = &open();
        } else {
          connection = idle_.back();
          idle_.pop_back();
        }
        ask(*connection, waiting.front());
        waiting.pop_front();
      }
      const bool over = next >= end_;
      if (over && waiting.empty() && busy_ == 0) return;
      if (now > end_ + kLongestSilence || errors_ > kMostErrors) break;
      turn(over ? Clock::duration(std::chrono::milliseconds(100)) : next - Clock::now());
    }
    if (!waiting.empty()) fail(static_cast<long>(waiting.size()), "not even sent in time");
  }

  void run_held() {
    std::size_t opened = 0;
    const Clock::time_point ramped = start_ + seconds_of(double(options_.hold) / options_.ramp);
    while (opened < options_.hold || begun_ + errors_ < static_cast<long>(options_.hold)) {
      for (; opened < options_.hold &&
             Clock::now() >= start_ + seconds_of(double(opened) / options_.ramp);
           ++opened) {
        ask(open(), Clock::now());
      }
      turn(std::chrono::milliseconds(1));
      if (Clock::now() > ramped + 2 * kLongestSilence || errors_ > kMostErrors) {
        fail(static_cast<long>(options_.hold) - begun_ - errors_, "no event of a stream");
        break;
      }
    }
    print_step("held", begun_);
    const long before = seen_events_;
    delays_us_.clear();
    const Clock::time_point window = Clock::now() + seconds_of(options_.seconds);
    while (Clock::now() < window) turn(window - Clock::now());
    print_step("window_events", seen_events_ - before);
    const std::vector<float> in_window = delays_us_;
    while (busy_ > 0 && turn(kLongestSilence)) {
    }
    delays_us_ = in_window;
  }

  // Waits for at most `longest` and handles what is ready; false if nothing was.
  bool turn(Clock::duration longest) {
    const auto ns = std::max<std::int64_t>(
        0, std::chrono::duration_cast<std::chrono::nanoseconds>(longest).count());
    const timespec wait{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    epoll_event ready[256];
    const int count = epoll_pwait2(epoll_, ready, 256, &wait, nullptr);
    for (int i = 0; i < count; ++i) {
      Connection& connection = *connections_[ready[i].data.u64];
      if ((ready[i].events & EPOLLOUT) != 0) send_more(connection);
      if ((ready[i].events & ~std::uint32_t{EPOLLOUT}) != 0) receive(connection);
    }
    return count > 0;
  }

  Connection& open() {
    Connection& connection = *connections_.emplace_back(std::make_unique<Connection>());
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(options_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connection.fd < 0 ||
        (connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
         errno != EINPROGRESS)) {
      std::perror("connect");
      std::exit(2);
    }
    if (tls_ != nullptr) {
      connection.tls = SSL_new(tls_);
      SSL_set_fd(connection.tls, connection.fd);
      SSL_set_connect_state(connection.tls);
    }
    const int on = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = connection.index = connections_.size() - 1;
    ++open_;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
    return connection;
  }

  void ask(Connection& connection, Clock::time_point due) {
    connection.answer = {};
    connection.busy = true;
    connection.due = due;
    connection.out = make_request(options_.prompts, number_++);
    connection.sent = 0;
    ++busy_;
    send_more(connection);
  }

  // As send() and recv(); the handshake of TLS goes on within either.
  static ssize_t put(Connection& connection, const char* from, std::size_t size) {
    if (connection.tls == nullptr) return send(connection.fd, from, size, MSG_NOSIGNAL);
    ERR_clear_error();
    return SSL_write(connection.tls, from, static_cast<int>(size));
  }
  static ssize_t take(Connection& connection, char* to, std::size_t size) {
    if (connection.tls == nullptr) return recv(connection.fd, to, size, 0);
    ERR_clear_error();
    const int got = SSL_read(connection.tls, to, static_cast<int>(size));
    if (got > 0) return got;
    const int why = SSL_get_error(connection.tls, got);
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return why == SSL_ERROR_ZERO_RETURN ? 0 : -1;
  }

  void send_more(Connection& connection) {
    while (connection.sent < connection.out.size()) {
      const ssize_t sent = put(connection, connection.out.data() + connection.sent,
                               connection.out.size() - connection.sent);
      // A connection that breaks says so to receive().
      if (sent <= 0) break;
      connection.sent += static_cast<std::size_t>(sent);
    }
    // Within the handshake it is the other side that is waited for.
    const bool awaits_room = connection.sent < connection.out.size() &&
                             (connection.tls == nullptr || SSL_want_write(connection.tls) ||
                              !SSL_in_init(connection.tls));
    if (awaits_room == connection.awaits_room) return;
    connection.awaits_room = awaits_room;
    epoll_event event{};
    event.events = EPOLLIN | (awaits_room ? std::uint32_t{EPOLLOUT} : 0);
    event.data.u64 = connection.index;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  }

  void receive(Connection& connection) {
    if (connection.fd < 0) return;
    const ssize_t got = take(connection, buffer_.data(), buffer_.size());
    const int error = errno;
    // A step of the handshake may have come.
    if (connection.tls != nullptr && connection.sent < connection.out.size()) send_more(connection);
    if (got < 0 && error == EAGAIN) return;
    if (got <= 0 || !connection.busy) {
      if (connection.busy) fail(1, got < 0 ? std::strerror(error) : "closed within an answer");
      return drop(connection);
    }
    const Clock::time_point now = Clock::now();
    const std::size_t delays = delays_us_.size();
    const int events = connection.answer.events();
    const Answer::Progress progress =
        connection.answer.feed({buffer_.data(), std::size_t(got)}, now, delays_us_);
    seen_events_ += connection.answer.events() - events;
    if (delays_us_.size() > delays && !connection.seen_event) {
      connection.seen_event = true;
      ++begun_;
      first_us_.push_back(delays_us_[delays]);
    }
    if (progress == Answer::Progress::kMore) return;
    if (progress == Answer::Progress::kBad) {
      fail(1, connection.answer.fault());
      drop(connection);
    } else {
      on_whole(connection, now);
    }
  }

  void on_whole(Connection& connection, Clock::time_point now) {
    connection.seen_event = false;
    connection.busy = false;
    --busy_;
    if (options_.events > 0 && connection.answer.events() != options_.events) {
      fail(1, std::to_string(connection.answer.events()) + " events, not " +
                  std::to_string(options_.events));
    } else {
      ++requests_;
      events_ += connection.answer.events();
      times_us_.push_back(std::chrono::duration<float, std::micro>(now - connection.due).count());
    }
    if (again_ && now < end_ && errors_ < kMostErrors) {
      ask(connection, now);
    } else if (options_.rate > 0) {
      idle_.push_back(&connection);
    } else {
      drop(connection);
    }
  }

  // Closes it; a closed loop opens another in its place.
  void drop(Connection& connection) {
    std::erase(idle_, &connection);
    SSL_free(std::exchange(connection.tls, nullptr));
    close(connection.fd);
    connection.fd = -1;
    --open_;
    const bool lost = std::exchange(connection.busy, false);
    if (!lost) return;
    --busy_;
    if (again_ && Clock::now() < end_ && errors_ < kMostErrors) ask(open(), Clock::now());
  }

  void fail(long count, const std::string& why) {
    if (errors_ == 0) why_ = why;
    errors_ += count;
  }

  static void print_step(const char* name, long value) {
    std::printf("{\"%s\": %ld}\n", name, value);
    std::fflush(stdout);
  }

  static void print_quantiles(const char* name, std::vector<float>& values) {
    std::sort(values.begin(), values.end());
    for (const auto& [label, q] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}}) {
      if (values.empty()) return;
      const double value = values[static_cast<std::size_t>(q * double(values.size() - 1))];
      std::printf(R"("%s_%s_us": %.1f, )", name, label, value);
    }
  }

  void print_result() {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    std::string why = why_;
    std::erase_if(why, [](char c) { return c == '"' || c == '\\' || c < ' '; });
    std::printf("{");
    print_quantiles("request", times_us_);
    print_quantiles("event", delays_us_);
    print_quantiles("first", first_us_);
    std::printf(R"("requests": %ld, "events": %ld, "errors": %ld, "why": "%s", "seconds": %.3f})"
                "\n",
                requests_, events_, errors_, why.c_str(), seconds);
  }

  const Options options_;
  const int epoll_;
  SSL_CTX* tls_ = nullptr;  // none: plain
  Clock::time_point start_;
  Clock::time_point end_;
  bool again_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::size_t open_ = 0;
  std::vector<Connection*> idle_;
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
  long busy_ = 0;
  long begun_ = 0;  // streams with an event
  long number_ = 0;
  long requests_ = 0;
  long events_ = 0;       // of whole answers
  long seen_events_ = 0;  // of all
  long errors_ = 0;
  std::string why_;  // of the first error
  std::vector<float> times_us_;
  std::vector<float> delays_us_;
  std::vector<float> first_us_;
};

}  // namespace
}  // namespace pointsman::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  pointsman::bench::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--port") options.port = std::atoi(value);
    if (name == "--connections") options.connections = std::strtoul(value, nullptr, 10);
    if (name == "--seconds") options.seconds = std::atof(value);
    if (name == "--rate") options.rate = std::atof(value);
    if (name == "--hold") options.hold = std::strtoul(value, nullptr, 10);
    if (name == "--ramp") options.ramp = std::atof(value);
    if (name == "--events") options.events = std::atoi(value);
    if (name == "--tls") options.tls = std::atoi(value) != 0;
    if (name == "--prompt-bytes") options.prompts.bytes = std::strtoul(value, nullptr, 10);
    if (name == "--families") options.prompts.families = std::atoi(value);
    if (name == "--stream") options.prompts.stream = std::atoi(value) != 0;
  }
  return pointsman::bench::Load(options).run();
}
