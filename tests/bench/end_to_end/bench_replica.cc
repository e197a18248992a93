// A stand-in replica for measuring proxies: as cheap as an engine can be, so that the proxy is what
// is measured. One thread, epoll. Plain requests get a fixed JSON answer at once; requests with
// "stream":true get paced server-sent events, each with the time of its sending in it. Health,
// metrics, models and tokenize answer what a router asks.
//
//   bench_replica [--listeners N]     prints one `replica on URL` each, then `listening on` the
//   first
//
// How streams go is set between measurements, for all that begin later:
//   GET /bench?first_us=N&interval_us=N&burst=N&events=N
// the first event comes first_us after the head; then `burst` events at a time, each a write of its
// own, every interval_us, `events` in all before the last `[DONE]`.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"

namespace pointsman::bench {
namespace {

constexpr std::size_t kEventBytes = 174;  // of one event, the length of vLLM's
constexpr std::size_t kStampDigits = 18;

struct Pace {
  std::chrono::microseconds first{20'000};
  std::chrono::microseconds interval{20'000};
  int burst = 1;
  int events = 64;
};

struct Connection {
  int fd = -1;
  std::string in;
  std::string out;
  bool awaits_room = false;
  Pace pace;
  int events_left = 0;
};

std::string with_length(std::string_view type, std::string_view body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

std::string chunk(std::string_view data) {
  char size[32];
  const int digits = std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return std::string(size, static_cast<std::size_t>(digits)) + std::string(data) + "\r\n";
}

std::string make_event() {
  std::string event =
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m1",)"
      R"("choices":[{"index":0,"delta":{"content":)";
  event += std::string(kStampMark) + std::string(kStampDigits, '0') + " ";
  constexpr std::string_view kTail = "\"}}]}\n\n";
  event.append(kEventBytes - event.size() - kTail.size(), 'x');
  return event.append(kTail);
}

// The value of `name=` in a request's first line; `otherwise` where there is none.
int parameter(std::string_view request, std::string_view name, int otherwise) {
  const std::string_view line = request.substr(0, request.find('\r'));
  const std::size_t at = line.find(std::string(name) + "=");
  return at == std::string_view::npos ? otherwise : std::atoi(line.data() + at + name.size() + 1);
}

// One id for every four bytes, alike for alike beginnings.
std::string tokens_of(std::string_view text) {
  std::string ids;
  for (std::size_t at = 0; at + 4 <= text.size(); at += 4) {
    const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(text[at + i])); };
    const std::uint32_t four = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    ids += (ids.empty() ? "" : ",") + std::to_string(four % 50'021);
  }
  return R"({"count":)" + std::to_string(text.size() / 4) +
         R"(,"max_model_len":1000000,"tokens":[)" + ids + "]}";
}

class Replica {
 public:
  explicit Replica(int listeners) : epoll_(epoll_create1(0)) {
    for (int i = 0; i < listeners; ++i) ports_.push_back(listen_anywhere());
    for (const int port : ports_) std::printf("replica on http://127.0.0.1:%d\n", port);
    std::printf("listening on http://127.0.0.1:%d\n", ports_.front());
    std::fflush(stdout);
  }

  [[noreturn]] void run() {
    epoll_event ready[256];
    while (true) {
      const int count = epoll_wait(epoll_, ready, 256, milliseconds_to_next());
      for (int i = 0; i < count; ++i) {
        if (is_listener(ready[i].data.fd)) {
          accept_all(ready[i].data.fd);
        } else if (const auto found = connections_.find(ready[i].data.fd);
                   found != connections_.end()) {
          on_ready(*found->second, ready[i].events);
        }
      }
      send_due();
    }
  }

 private:
  struct Due {
    Clock::time_point at;
    std::weak_ptr<Connection> connection;
    bool operator>(const Due& other) const { return at > other.at; }
  };

  int listen_anywhere() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd, generic, size) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, generic, &size) != 0) {
      std::perror("listen");
      std::exit(1);
    }
    watch(fd, EPOLLIN);
    last_listener_ = fd;
    return ntohs(address.sin_port);
  }

  // They were opened first, one after the other.
  bool is_listener(int fd) const { return fd <= last_listener_; }

  void watch(int fd, std::uint32_t events, int operation = EPOLL_CTL_ADD) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_, operation, fd, &event);
  }

  int milliseconds_to_next() const {
    if (due_.empty()) return -1;
    const auto left = due_.top().at - Clock::now();
    return static_cast<int>(
        std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }

  void accept_all(int listener) {
    while (true) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
      if (fd < 0) return;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      connections_[fd] = std::make_shared<Connection>();
      connections_[fd]->fd = fd;
      watch(fd, EPOLLIN);
    }
  }

  void drop(const Connection& connection) {
    const int fd = connection.fd;
    close(fd);
    connections_.erase(fd);
  }

  void on_ready(Connection& connection, std::uint32_t events) {
    if ((events & EPOLLOUT) != 0) {
      if (!flush(connection)) return;
    }
    if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return;
    char buffer[65536];
    const ssize_t got = recv(connection.fd, buffer, sizeof(buffer), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return drop(connection);
    if (got < 0) return;
    connection.in.append(buffer, static_cast<std::size_t>(got));
    while (answer_one(connection)) {
    }
    flush(connection);
  }

  // Answers the first whole request of the buffer; false when there is none.
  bool answer_one(Connection& connection) {
    const std::size_t head = connection.in.find("\r\n\r\n");
    if (head == std::string::npos) return false;
    std::size_t length = 0;
    for (const char* name : {"\r\nContent-Length: ", "\r\ncontent-length: "}) {
      const std::size_t at = std::string_view(connection.in).substr(0, head).find(name);
      if (at < head) length = std::strtoul(connection.in.c_str() + at + 18, nullptr, 10);
    }
    const std::size_t whole = head + 4 + length;
    if (connection.in.size() < whole) return false;
    const std::string_view request(connection.in.data(), whole);
    if (request.find("\"stream\":true", head) != std::string_view::npos) {
      connection.out +=
          "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
          "Transfer-Encoding: chunked\r\n\r\n";
      connection.pace = pace_;
      connection.events_left = pace_.events;
      due_.push({Clock::now() + pace_.first, connections_[connection.fd]});
    } else if (request.starts_with("GET /bench?")) {
      pace_ = {.first = std::chrono::microseconds(parameter(request, "first_us", 20'000)),
               .interval = std::chrono::microseconds(parameter(request, "interval_us", 20'000)),
               .burst = parameter(request, "burst", 1),
               .events = parameter(request, "events", 64)};
      connection.out += with_length("text/plain", "ok");
    } else if (request.starts_with("POST /tokenize")) {
      connection.out += with_length("application/json", tokens_of(request.substr(head + 4)));
    } else if (request.starts_with("POST /v1/chat/completions/render")) {
      connection.out += "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    } else if (request.starts_with("GET /metrics")) {
      connection.out += with_length("text/plain",
                                    "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
                                    "vllm:kv_cache_usage_perc 0.1\n");
    } else if (request.starts_with("GET /v1/models")) {
      connection.out += with_length("application/json",
                                    R"({"object":"list","data":[{"id":"m1","object":"model"}]})");
    } else if (request.starts_with("GET ")) {
      connection.out += with_length("text/plain", "ok");
    } else {
      connection.out += plain_;
    }
    connection.in.erase(0, whole);
    return true;
  }

  // False if the connection was lost.
  bool flush(Connection& connection) {
    std::size_t done = 0;
    bool full = false;
    while (done < connection.out.size() && !full) {
      const ssize_t sent = send(connection.fd, connection.out.data() + done,
                                connection.out.size() - done, MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) {
        drop(connection);
        return false;
      }
      full = sent < 0;
      done += full ? 0 : static_cast<std::size_t>(sent);
    }
    connection.out.erase(0, done);
    if (full != connection.awaits_room) {
      connection.awaits_room = full;
      watch(connection.fd, full ? EPOLLIN | EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
    }
    return true;
  }

  void send_due() {
    const Clock::time_point now = Clock::now();
    while (!due_.empty() && due_.top().at <= now) {
      const Due due = due_.top();
      due_.pop();
      const std::shared_ptr<Connection> connection = due.connection.lock();
      if (connection && send_burst(*connection))
        due_.push({due.at + connection->pace.interval, connection});
    }
  }

  // Each event is a write of its own, as engines make them. False after the last one.
  bool send_burst(Connection& connection) {
    for (int i = 0; i < connection.pace.burst; ++i) {
      const auto stamp = std::to_string(Clock::now().time_since_epoch().count());
      event_.replace(stamp_at_, kStampDigits,
                     std::string(kStampDigits - stamp.size(), '0') + stamp);
      connection.out += event_;
      if (--connection.events_left == 0) connection.out += done_;
      if (!flush(connection) || connection.events_left == 0) return false;
    }
    return true;
  }

  Pace pace_;
  const std::string plain_ = with_length(
      "application/json",
      R"({"id":"chatcmpl-1","object":"chat.completion","model":"m1","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201}})");
  std::string event_ = chunk(make_event());
  const std::size_t stamp_at_ = event_.find(kStampMark) + kStampMark.size();
  const std::string done_ = chunk("data: [DONE]\n\n") + "0\r\n\r\n";
  const int epoll_;
  std::vector<int> ports_;
  int last_listener_ = -1;
  std::unordered_map<int, std::shared_ptr<Connection>> connections_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace
}  // namespace pointsman::bench

int main(int argc, char** argv) {
  int listeners = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--listeners") listeners = std::max(1, std::atoi(argv[i + 1]));
  }
  pointsman::bench::Replica(listeners).run();
}
