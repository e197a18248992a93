// A load generator for measuring proxies: keeps N connections busy for some seconds and prints one
// line of JSON. One thread, epoll. Every request is a chat completion of about 1 KB whose system
// part is common and whose question differs.
//
//   bench_load --port P [--connections N] [--seconds S] [--stream 1]

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBodyBytes = 1050;
constexpr std::chrono::milliseconds kRamp{200};

struct Options {
  int port = 0;
  int connections = 32;
  double seconds = 3;
  bool stream = false;
};

// Where an answer ends: by Content-Length or by chunks; counts the events in it.
class Answer {
 public:
  enum class Progress : std::uint8_t { kMore, kDone, kBad };

  Progress feed(std::string_view in) {
    while (!in.empty() || (state_ == State::kBody && left_ == 0)) {
      if (state_ == State::kBody) {
        const std::size_t used = std::min(left_, in.size());
        count_events(in.substr(0, used));
        left_ -= used;
        in.remove_prefix(used);
        if (left_ > 0) return Progress::kMore;
        if (!chunked_) return Progress::kDone;
        state_ = State::kChunkEnd;
        line_.clear();
        continue;
      }
      // All else comes in lines.
      const std::size_t end = in.find('\n');
      line_.append(in.substr(0, end));
      if (end == std::string_view::npos) return Progress::kMore;
      in.remove_prefix(end + 1);
      if (!line_.empty() && line_.back() == '\r') line_.pop_back();
      const Progress progress = on_line();
      line_.clear();
      if (progress != Progress::kMore) return progress;
    }
    return Progress::kMore;
  }

  int events() const { return events_; }

 private:
  enum class State : std::uint8_t { kStatus, kHead, kBody, kChunkSize, kChunkEnd, kTrailer };

  Progress on_line() {
    switch (state_) {
      case State::kStatus:
        if (line_.find(" 200") == std::string::npos) return Progress::kBad;
        state_ = State::kHead;
        break;
      case State::kHead:
        if (line_.empty()) {
          state_ = chunked_ ? State::kChunkSize : State::kBody;
          break;
        }
        std::transform(line_.begin(), line_.end(), line_.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
        if (line_.starts_with("content-length:"))
          left_ = std::strtoul(line_.c_str() + 15, nullptr, 10);
        if (line_.starts_with("transfer-encoding:")) chunked_ = true;
        break;
      case State::kChunkSize:
        left_ = std::strtoul(line_.c_str(), nullptr, 16);
        state_ = left_ == 0 ? State::kTrailer : State::kBody;
        break;
      case State::kChunkEnd:
        state_ = State::kChunkSize;
        break;
      case State::kTrailer:
        if (line_.empty()) return Progress::kDone;
        break;
      case State::kBody:
        break;
    }
    return Progress::kMore;
  }

  void count_events(std::string_view data) {
    for (const char c : data) {
      events_ += c == '\n' && last_ == '\n' ? 1 : 0;
      last_ = c;
    }
  }

  State state_ = State::kStatus;
  bool chunked_ = false;
  std::size_t left_ = 0;
  std::string line_;
  char last_ = 0;
  int events_ = 0;
};

struct Connection {
  int fd = -1;
  Answer answer;
  Clock::time_point sent_at;
};

class Load {
 public:
  explicit Load(const Options& options) : options_(options), epoll_(epoll_create1(0)) {}

  int run() {
    connections_.resize(static_cast<std::size_t>(options_.connections));
    const Clock::time_point start = Clock::now();
    end_ = start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(options_.seconds));
    epoll_event ready[256];
    // Streams under way at the end are finished, so that their events count whole.
    while (opened_ < connections_.size() || busy_ > 0) {
      // Connections open over the first kRamp, so that streams do not tick in step.
      while (opened_ < connections_.size() &&
             Clock::now() >= start + kRamp * opened_ / connections_.size()) {
        open(opened_++);
      }
      const bool ramping = opened_ < connections_.size();
      const int count = epoll_wait(epoll_, ready, 256, ramping ? 1 : 10'000);
      if (count == 0 && !ramping) break;
      for (int i = 0; i < count; ++i) on_ready(ready[i].data.u64);
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::sort(times_us_.begin(), times_us_.end());
    const auto quantile = [this](double q) {
      return times_us_.empty()
                 ? 0.0
                 : times_us_[static_cast<std::size_t>(q * double(times_us_.size() - 1))];
    };
    std::printf(
        R"({"requests": %ld, "events": %ld, "errors": %ld, "seconds": %.3f, "p50_us": %.0f, "p99_us": %.0f})"
        "\n",
        requests_, events_, errors_, seconds, quantile(0.5), quantile(0.99));
    return errors_ == 0 ? 0 : 1;
  }

 private:
  void open(std::size_t index) {
    Connection& connection = connections_[index];
    connection.fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(options_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      std::perror("connect");
      std::exit(1);
    }
    const int on = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
    ++busy_;
    send_request(connection);
  }

  void send_request(Connection& connection) {
    std::string body = R"({"model":"m1",)";
    if (options_.stream) body += R"("stream":true,)";
    body +=
        R"("max_tokens":64,"messages":[{"role":"system","content":"You answer short questions about )"
        R"(rivers, cities and numbers in one sentence, and say so when you do not know."},)"
        R"({"role":"user","content":"Question )" +
        std::to_string(number_++) + ": ";
    constexpr std::string_view kTail = R"("}]})";
    static const std::string words = [] {
      std::string text;
      while (text.size() < kBodyBytes) text += "which river runs past the old town and how long ";
      return text;
    }();
    body += words.substr(0, kBodyBytes - kTail.size() - body.size());
    body += kTail;
    const std::string request =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench_load\r\n"
        "Accept: */*\r\nContent-Type: application/json\r\nAuthorization: Bearer none\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    connection.answer = {};
    connection.sent_at = Clock::now();
    // 1 KB on a connection that waits always fits into the socket's buffer.
    if (send(connection.fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      ++errors_;
    }
  }

  void on_ready(std::size_t index) {
    Connection& connection = connections_[index];
    char buffer[65536];
    const ssize_t got = recv(connection.fd, buffer, sizeof(buffer), 0);
    Answer::Progress progress = Answer::Progress::kBad;
    if (got > 0) progress = connection.answer.feed({buffer, static_cast<std::size_t>(got)});
    if (progress == Answer::Progress::kMore) return;
    const bool good = progress == Answer::Progress::kDone;
    if (good) {
      ++requests_;
      events_ += connection.answer.events();
      const auto took = Clock::now() - connection.sent_at;
      times_us_.push_back(std::chrono::duration<double, std::micro>(took).count());
      if (Clock::now() < end_) return send_request(connection);
    } else {
      ++errors_;
    }
    close(connection.fd);
    --busy_;
    if (!good && Clock::now() < end_ && errors_ < 1000) open(index);
  }

  const Options options_;
  const int epoll_;
  Clock::time_point end_;
  std::vector<Connection> connections_;
  std::size_t opened_ = 0;
  int busy_ = 0;
  long number_ = 0;
  long requests_ = 0;
  long events_ = 0;
  long errors_ = 0;
  std::vector<double> times_us_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--port") options.port = std::atoi(value);
    if (name == "--connections") options.connections = std::atoi(value);
    if (name == "--seconds") options.seconds = std::atof(value);
    if (name == "--stream") options.stream = std::atoi(value) != 0;
  }
  return Load(options).run();
}
