// A connection of HTTP/2 under random events: requests of all forms, bodies that come in pieces,
// resets, windows, frames of any type and content, a client that leaves or does not read, a replica
// that answers or breaks off, the clock. An answer that a client takes for whole is its request's
// own; and when all have left, nothing of them is left.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "http/head_writer.h"
#include "support/fuzz_check.h"
#include "support/http2_client.h"
#include "support/plain_message.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

constexpr std::size_t kConnections = 4;

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool over() const { return at_ == end_; }
  std::size_t next(std::size_t below) { return over() ? 0 : *at_++ % below; }
  std::string bytes(std::size_t most) {
    const std::size_t count =
        std::min(next(256) % (most + 1), static_cast<std::size_t>(end_ - at_));
    std::string out(reinterpret_cast<const char*>(at_), count);
    at_ += count;
    return out;
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

class Session {
 public:
  explicit Session(StepListener& listener) : listener_(listener), proxy_(options()) {
    proxy_.add(listener_.port());
  }

  void run(Script script) {
    const bool small = script.next(2) == 1;
    windows_ = small ? 300 : 65'535;
    begin();
    while (!script.over()) step(script);
    end();
  }

 private:
  struct Connection {
    StepSocket socket = StepSocket();
    std::string out;
    bool until_close = false;
  };

  static ProxyOptions options() {
    ProxyOptions options;
    options.limits.max_body = 40'000;
    options.limits.body_memory = 200'000;
    options.limits.request_body = 150'000;
    return options;
  }

  void begin() {
    client_ = std::make_unique<Http2Client>(
        proxy_, Http2Client::Settings{.stream_window = windows_, .auto_window = windows_ > 300});
    requests_.clear();
    open_bodies_.clear();
    tainted_ = false;
  }

  void step(Script& script) {
    switch (script.next(14)) {
      case 0:
      case 1:
      case 2:
        return ask(script.next(16));
      case 3:
      case 4:
        client_->move();
        return proxy_.turn();
      case 5:
        return answer(script);
      case 6: {
        Connection& connection = connections_[script.next(kConnections)];
        if (script.next(2) == 0) {
          connection.socket.reset();
        } else {
          connection.socket.close();
        }
        connection = Connection{};
        return proxy_.turn();
      }
      case 7:
        if (!requests_.empty()) client_->reset(some_request(script), NGHTTP2_CANCEL);
        return;
      case 8: {
        const auto type = static_cast<std::uint8_t>(script.next(12));
        const auto flags = static_cast<std::uint8_t>(script.next(256));
        const auto id = static_cast<std::uint32_t>(script.next(20));
        tainted_ = true;
        return client_->send_raw(Http2Client::frame(type, flags, id, script.bytes(64)));
      }
      case 9:
        tainted_ = true;
        return client_->send_raw(script.bytes(64));
      case 10: {
        constexpr std::array<std::int64_t, 5> kSteps = {1, 60, 1'000, 20'000, 400'000};
        return proxy_.advance(std::chrono::milliseconds(kSteps[script.next(kSteps.size())]));
      }
      case 11: {
        const std::int32_t id = requests_.empty() ? 0 : some_request(script);
        nghttp2_submit_window_update(client_->session(), NGHTTP2_FLAG_NONE, id,
                                     static_cast<std::int32_t>(script.next(256)) + 1);
        return;
      }
      case 12:
        if (script.next(3) > 0) return client_->stop_reading();
        client_->socket().reset();
        return begin();
      default: {
        if (open_bodies_.empty()) return;
        const std::int32_t id = open_bodies_.back();
        if (script.next(3) > 0) return client_->add_body(id, std::string(script.next(200), 'b'));
        open_bodies_.pop_back();
        return client_->end_body(id);
      }
    }
  }

  std::int32_t some_request(Script& script) {
    auto at = requests_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(script.next(requests_.size())));
    return at->first;
  }

  void ask(std::size_t kind) {
    if (requests_.size() >= 40) return;
    const std::string name = "r" + std::to_string(next_request_++);
    Fields fields = Http2Client::post("/v1/chat/completions", {{"x-request-id", name}});
    std::string body = R"({"model":"m","stream":true,"x":")" + name + "\"}";
    std::optional<std::string> sent = body;
    bool open = false;
    Fields trailers;
    switch (kind) {
      case 0:
        fields.emplace_back("content-length", std::to_string(body.size()));
        break;
      case 1:
        fields[0].second = "GET";
        sent.reset();
        break;
      case 2:
        fields[0].second = "HEAD";
        sent.reset();
        break;
      case 3:
        sent = std::string(100'000, 'x');
        break;
      case 4:
        sent = std::string(200'000, 'x');
        break;
      case 5:
        open = true;
        break;
      case 6:
        trailers = {{"x-t", "v"}};
        break;
      case 7:
        fields.emplace_back("content-length", "3");
        break;
      case 8:
        fields[3].second = "/v1//x";
        break;
      case 9:
        fields.emplace_back("expect", "100-continue");
        break;
      case 10:
        fields.emplace_back("transfer-encoding", "chunked");
        break;
      case 11:
        fields.emplace_back("x-long", std::string(20'000, 'a'));
        fields.emplace_back("x-more", std::string(20'000, 'a'));
        break;
      case 12:
        fields.emplace_back("cookie", "a=b");
        fields.emplace_back("cookie", "c=d");
        break;
      default:
        break;
    }
    const std::int32_t id = client_->request(fields, sent, open, trailers);
    if (id < 0) return;
    requests_[id] = name;
    if (open) open_bodies_.push_back(id);
  }

  // The replica takes what has come, and answers the first whole request of a connection.
  void answer(Script& script) {
    Connection& connection = connections_[script.next(kConnections)];
    const std::size_t kind = script.next(8);
    if (!connection.socket.open()) connection = Connection{.socket = listener_.accept(), .out = {}};
    connection.socket.receive();
    const std::optional<PlainMessage> request = read_message(connection.socket.in());
    if (request && !connection.until_close) {
      const std::string body = "own " + request->header("x-request-id");
      const bool without = request->start.starts_with("HEAD");
      const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
      std::string& out = connection.out;
      switch (kind) {
        case 0:
          out += "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
          [[fallthrough]];
        case 1:
          out += "HTTP/1.1 200 OK\r\n" + length + "\r\n" + (without ? "" : body);
          break;
        case 2:
        case 3:
          out += "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
          if (without) break;
          append_chunk(out, std::string_view(body).substr(0, 2));
          append_chunk(out, std::string_view(body).substr(2));
          out += kind == 2 ? "0\r\n\r\n" : "0\r\nX-T: v\r\n\r\n";
          break;
        case 4:
          out += "HTTP/1.1 200 OK\r\n\r\n" + (without ? "" : body);
          connection.until_close = true;
          break;
        case 5:
          out += "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\ncut";
          break;
        case 6:
          out += "HTTP/1.1 503 Busy\r\n" + length + "\r\n" + (without ? "" : body);
          break;
        default:
          out += "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nbroken";
          break;
      }
      connection.socket.in().erase(0, request->size);
    }
    const std::size_t sent = connection.socket.send(connection.out);
    connection.out.erase(0, sent);
    if (connection.until_close && connection.out.empty()) connection = Connection{};
    proxy_.turn();
    client_->move();
    look();
  }

  // What a client takes for a whole answer of a replica is its own.
  void look() {
    if (tainted_) return;
    check(!client_->broken());
    for (const auto& [id, name] : requests_) {
      const Http2Answer& answer = client_->answer(id);
      if (!answer.ended || answer.status() != "200" || answer.data.empty()) continue;
      check(answer.data == "own " + name);
    }
  }

  void end() {
    for (int i = 0; i < 5; ++i) {
      client_->move();
      proxy_.turn();
    }
    look();
    client_->socket().reset();
    for (Connection& connection : connections_) connection.socket.reset();
    const bool all_left = proxy_.until([&] {
      while (listener_.accept().open()) continue;
      proxy_.advance(std::chrono::minutes(5));
      return proxy_.connections() == 0 && proxy_.shard().upstreams().open_connections() == 0;
    });
    check(all_left);
    check(proxy_.in_flight() == 0);
    check(proxy_.held_bytes() == 0);
    check(proxy_.metrics().in_flight.value() == 0);
    check(proxy_.metrics().http2_connections.value() == 0);
    check(proxy_.metrics().internal_errors.value() == 0);
  }

  StepListener& listener_;
  SteppedProxy proxy_;
  std::uint32_t windows_ = 65'535;
  std::unique_ptr<Http2Client> client_;
  std::map<std::int32_t, std::string> requests_;
  std::vector<std::int32_t> open_bodies_;
  std::size_t next_request_ = 0;
  bool tainted_ = false;  // bytes of no session's making were sent
  std::array<Connection, kConnections> connections_;
};

}  // namespace
}  // namespace pointsman::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman::test;
  static StepListener listener;
  if (size > 2'000) return 0;
  Session(listener).run(Script(data, size));
  return 0;
}
