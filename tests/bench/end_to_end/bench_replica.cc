// A stand-in replica for measuring proxies: as cheap as an engine can be, so that the proxy is what
// is measured. One thread, epoll. Plain requests get a fixed JSON answer at once; requests with
// "stream":true get paced server-sent events. Health, metrics and models answer what a router asks.
//
//   bench_replica [--events N] [--interval-us N]

#include <cerrno>
#include <chrono>
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

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kEventBytes = 174;  // of one event, the length of vLLM's

struct Options {
  int events = 64;
  std::chrono::microseconds interval{20'000};
};

struct Connection {
  int fd;
  std::string in;
  std::string out;
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
      R"("choices":[{"index":0,"delta":{"content":")";
  constexpr std::string_view kTail = "\"}}]}\n\n";
  event.append(kEventBytes - event.size() - kTail.size(), 'x');
  return event.append(kTail);
}

class Replica {
 public:
  explicit Replica(const Options& options) : options_(options), epoll_(epoll_create1(0)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, generic, size) != 0 || listen(listener_, 4096) != 0 ||
        getsockname(listener_, generic, &size) != 0) {
      std::perror("listen");
      std::exit(1);
    }
    watch(listener_, EPOLLIN);
    std::printf("listening on http://127.0.0.1:%d\n", ntohs(address.sin_port));
    std::fflush(stdout);
  }

  [[noreturn]] void run() {
    epoll_event ready[256];
    while (true) {
      const int count = epoll_wait(epoll_, ready, 256, milliseconds_to_next());
      for (int i = 0; i < count; ++i) {
        if (ready[i].data.fd == listener_) {
          accept_all();
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

  void accept_all() {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
      if (fd < 0) return;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      connections_[fd] = std::make_shared<Connection>(Connection{.fd = fd, .in = {}, .out = {}});
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
      const std::size_t at = connection.in.find(name);
      if (at < head) length = std::strtoul(connection.in.c_str() + at + 18, nullptr, 10);
    }
    const std::size_t whole = head + 4 + length;
    if (connection.in.size() < whole) return false;
    const std::string_view request(connection.in.data(), whole);
    if (request.find("\"stream\":true", head) != std::string_view::npos) {
      connection.out +=
          "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
          "Transfer-Encoding: chunked\r\n\r\n";
      connection.events_left = options_.events;
      due_.push({Clock::now() + options_.interval, connections_[connection.fd]});
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
    while (!connection.out.empty()) {
      const ssize_t sent =
          send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        watch(connection.fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
        return true;
      }
      if (sent < 0) {
        drop(connection);
        return false;
      }
      connection.out.erase(0, static_cast<std::size_t>(sent));
      if (connection.out.empty()) watch(connection.fd, EPOLLIN, EPOLL_CTL_MOD);
    }
    return true;
  }

  void send_due() {
    const Clock::time_point now = Clock::now();
    while (!due_.empty() && due_.top().at <= now) {
      const Due due = due_.top();
      due_.pop();
      const std::shared_ptr<Connection> connection = due.connection.lock();
      if (!connection) continue;
      connection->out += event_;
      if (--connection->events_left == 0) {
        connection->out += done_;
      } else {
        due_.push({due.at + options_.interval, connection});
      }
      flush(*connection);
    }
  }

  const Options options_;
  const std::string plain_ = with_length(
      "application/json",
      R"({"id":"chatcmpl-1","object":"chat.completion","model":"m1","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":200,"completion_tokens":1,"total_tokens":201}})");
  const std::string event_ = chunk(make_event());
  const std::string done_ = chunk("data: [DONE]\n\n") + "0\r\n\r\n";
  const int epoll_;
  int listener_ = -1;
  std::unordered_map<int, std::shared_ptr<Connection>> connections_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--events") options.events = std::atoi(argv[i + 1]);
    if (name == "--interval-us")
      options.interval = std::chrono::microseconds(std::atoi(argv[i + 1]));
  }
  Replica(options).run();
}
