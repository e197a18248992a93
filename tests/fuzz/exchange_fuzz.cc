// Exchanges under random events of both peers and of the clock: clients that ask, pipeline,
// hesitate and leave, replicas that answer in all forms, break off and send what nobody asked for.
// Each request has at most one answer, whole or visibly not, made of its own bytes alone; a replica
// gets requests as they were sent; and when all have left, nothing of them is left.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/fuzz_check.h"
#include "support/plain_message.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

constexpr std::size_t kClients = 3;
constexpr std::size_t kReplicas = 2;
constexpr std::size_t kConnections = 4;  // of each replica, looked after at a time

// The input, one byte a decision.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  [[nodiscard]] bool over() const { return at_ == end_; }
  std::size_t next(std::size_t below) { return over() ? 0 : *at_++ % below; }
  // A number of bytes: often few, at times all that there are.
  std::size_t amount() {
    constexpr std::array<std::size_t, 8> kUnits = {1, 3, 17, 60, 200, 3'000, 50'000, 1'000'000};
    return kUnits[next(kUnits.size())];
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

struct Request {
  std::string id;  // its X-Request-Id, and what its answers are made of
  std::string method;
  std::string target;
  std::string body;
  bool own = false;            // answered by the router
  bool bad = false;            // refused by the router
  bool old = false;            // HTTP/1.0
  bool end_by_close = false;   // a replica has ended an answer to it that any close ends
  std::size_t times_sent = 0;  // to replicas
};

struct Client {
  StepSocket socket;
  std::string out;                    // still to be sent
  std::vector<std::size_t> requests;  // in their order
  std::size_t answered = 0;
  bool tunnel = false;
};

struct Connection {
  StepSocket socket;
  std::string out;
  Request* request = nullptr;  // the one under way
  bool until_close = false;    // of the answer in `out`
  bool switched = false;
};

class Exchanges {
 public:
  explicit Exchanges(std::array<StepListener, kReplicas>& listeners)
      : listeners_(listeners), proxy_(options()) {
    for (StepListener& listener : listeners_) proxy_.add(listener.port());
  }

  void run(Script script) {
    while (!script.over()) step(script);
    end();
  }

 private:
  static ProxyOptions options() {
    ProxyOptions options;
    options.limits.max_body = 40'000;
    options.limits.body_memory = 200'000;
    options.limits.request_body = 150'000;
    return options;
  }

  void step(Script& script) {
    const std::size_t event = script.next(14);
    Client& client = clients_[script.next(kClients)];
    const std::size_t replica = script.next(kReplicas);
    Connection& connection = connections_[replica][script.next(kConnections)];
    switch (event) {
      case 0:
      case 1:
        if (!client.socket.open())
          client = Client{.socket = proxy_.client(), .out = {}, .requests = {}};
        return ask(client, script.next(12));
      case 2:
      case 3:
        client.out.erase(
            0, client.socket.send(std::string_view(client.out).substr(0, script.amount())));
        return proxy_.turn();
      case 4:
        client.socket.receive(script.amount());
        return take_answers(client);
      case 5:
        return leave(client.socket, script.next(3));
      case 6:
      case 7:
        proxy_.turn(3);
        if (!connection.socket.open()) {
          connection = Connection{.socket = listeners_[replica].accept(), .out = {}};
        }
        connection.socket.receive(script.amount());
        return take_request(connection);
      case 8:
        return answer(connection, script.next(16), script.amount());
      case 9:
      case 10:
        connection.out.erase(
            0, connection.socket.send(std::string_view(connection.out).substr(0, script.amount())));
        return proxy_.turn();
      case 11: {
        const std::size_t way = script.next(3);
        if (connection.request != nullptr && connection.until_close && way != 1) {
          connection.request->end_by_close = true;
        }
        return leave(connection.socket, way);
      }
      case 12: {
        constexpr std::array<int, 8> kMilliseconds = {1,      60,     400,       1'100,
                                                      11'000, 80'000, 1'000'000, 5'000'000};
        return proxy_.advance(std::chrono::milliseconds(kMilliseconds[script.next(8)]));
      }
      default:
        break;
    }
    if (script.next(4) == 0) {
      proxy_.shard().replica_gone(static_cast<ReplicaIndex>(replica));
    } else {
      proxy_.fleet().probe_result(static_cast<ReplicaIndex>(replica),
                                  {ProbeResult::Kind::kReady, ""});
      proxy_.fleet().tick();
    }
    proxy_.turn();
  }

  static void leave(StepSocket& socket, std::size_t way) {
    if (way == 0) return socket.close();
    if (way == 1) return socket.reset();
    socket.shut_write();
  }

  // --- the client's side

  void ask(Client& client, std::size_t kind) {
    Request request;
    request.id = "q" + std::to_string(requests_.size()) + "q";
    request.method = kind == 0 ? "GET" : kind == 1 ? "HEAD" : "POST";
    request.target = kind == 2 ? "/healthz" : "/v1/completions";
    if (kind == 2) request.method = "GET";
    request.own = kind == 2;
    request.old = kind == 3;
    request.bad = kind == 4;
    const std::size_t size = kind == 5 ? 30'000 : kind == 6 ? 100'000 : kind == 7 ? 400'000 : 10;
    if (request.method == "POST") {
      request.body = R"({"model":"m","stream":)" + std::string(kind == 8 ? "true" : "false") +
                     R"(,"prompt":")" + request.id;
      request.body.append(size, 'x') += R"("})";
    }
    std::string& out = client.out;
    out += request.method + " " + request.target + (request.old ? " HTTP/1.0" : " HTTP/1.1") +
           "\r\nHost: a\r\nX-Request-Id: " + request.id + "\r\n";
    if (request.bad) out += "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n";
    if (kind == 9) out += "Expect: 100-continue\r\n";
    if (kind == 10) out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    if (kind == 11 || kind == 6) {
      const std::size_t half = request.body.size() / 2;
      out += "Transfer-Encoding: chunked\r\n\r\n";
      for (const std::string_view part : {std::string_view(request.body).substr(0, half),
                                          std::string_view(request.body).substr(half)}) {
        append_chunk(out, part);
      }
      out += "0\r\n\r\n";
    } else {
      if (!request.body.empty()) {
        out += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
      }
      out += "\r\n" + request.body;
    }
    client.requests.push_back(requests_.size());
    requests_.emplace(requests_.size(), std::move(request));
  }

  static void append_chunk(std::string& out, std::string_view data) {
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", data.size());
    (out += size).append(data) += "\r\n";
  }

  void take_answers(Client& client) {
    std::string& in = client.socket.in();
    while (!client.tunnel && !in.empty()) {
      check(client.answered < client.requests.size());
      const Request& request = requests_.at(client.requests[client.answered]);
      const std::optional<PlainMessage> got =
          read_message(in, request.method == "HEAD", client.socket.ended());
      if (!got) return;
      check(got->start.starts_with("HTTP/1.1 "));
      const int status = got->status();
      if (status == 101) client.tunnel = true;
      const std::string error = got->header("x-pointsman-error");
      if (error == "bad_head" || error == "head_timeout") {
        // Of no known request, so that nobody knew that it was a HEAD; and the last one.
        client.answered = client.requests.size();
        return in.clear();
      }
      if (status >= 200) {
        check_answer(request, *got);
        ++client.answered;
      }
      in.erase(0, got->size);
    }
  }

  static void check_answer(const Request& request, const PlainMessage& got) {
    const std::string own_error = got.header("x-pointsman-error");
    check(!request.bad);
    check(got.header("x-request-id") == request.id);
    if (!own_error.empty() || request.own) {
      check(got.body.find("<q") == std::string::npos);
      return;
    }
    if (request.method == "HEAD" || got.status() == 204 || got.status() == 304) return;
    // Whole, from its first byte to its last, or ended by what looks the same.
    const std::string first = "<" + request.id + ":";
    const std::size_t last = got.body.find_last_not_of("\r\n");
    const bool told = got.until_close && got.body.find("\"error\"") != std::string::npos;
    if (!request.end_by_close) {
      check(got.body.find(first) <= 6);
      check(told || got.body[last] == '>');
    }
    check(got.body.find("<q") == got.body.rfind("<q"));
    check(got.body.find("evil") == std::string::npos);
  }

  // --- the replica's side

  void take_request(Connection& connection) {
    std::string& in = connection.socket.in();
    if (connection.switched) return in.clear();
    if (connection.request != nullptr) return finish_request(connection);
    const std::size_t end = in.find("\r\n\r\n");
    if (end == std::string::npos) return;
    const std::size_t id = in.find("X-Request-Id: q");
    check(id < end);
    const auto found = requests_.find(std::stoul(in.substr(id + 15)));
    check(found != requests_.end());
    Request& request = found->second;
    check(!request.bad && !request.own);
    check(in.starts_with(request.method + " " + request.target + " HTTP/1.1\r\n"));
    // Its tries, and one more each where a kept connection had gone stale.
    check(++request.times_sent <= 6);
    connection.request = &request;
    finish_request(connection);
  }

  static void finish_request(Connection& connection) {
    const std::optional<PlainMessage> got = read_message(connection.socket.in());
    if (!got) return;
    check(got->body == connection.request->body);
    check(got->header("x-request-id") == connection.request->id);
  }

  void answer(Connection& connection, std::size_t kind, std::size_t size) {
    if (connection.request == nullptr || connection.switched || connection.until_close) return;
    Request& request = *connection.request;
    std::string body = "<" + request.id + ":";
    body.append(size % 100'000, 'y') += ">";
    const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
    const bool without = request.method == "HEAD";
    std::string& out = connection.out;
    switch (kind) {
      case 0:
      case 1:
        if (kind == 1) out += "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        out += "HTTP/1.1 200 OK\r\n" + length + "\r\n" + (without ? "" : body);
        break;
      case 2:
      case 3:
      case 4:
        out += "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
        if (kind >= 3) {
          out += "Content-Type: text/event-stream\r\n";
          body.insert(0, "data: ") += "\n\n";
        }
        if (kind == 4) out += "Content-Encoding: gzip\r\n";
        out += "\r\n";
        if (without) break;
        append_chunk(out, std::string_view(body).substr(0, body.size() / 2));
        append_chunk(out, std::string_view(body).substr(body.size() / 2));
        out += "0\r\n\r\n";
        break;
      case 5:
      case 6:
        out += "HTTP/1.1 200 OK\r\n";
        if (kind == 6) out += "Content-Type: text/event-stream\r\n";
        out += "\r\n" + (without ? "" : kind == 6 ? "data: " + body + "\n\n" : body);
        connection.until_close = true;
        break;
      case 7:
      case 8:
      case 9: {
        constexpr std::array<std::string_view, 3> kLines = {"503 Busy", "429 Later", "500 Broken"};
        (out += "HTTP/1.1 ").append(kLines[kind - 7]) +=
            "\r\n" + length + "\r\n" + (without ? "" : body);
        break;
      }
      case 10:
        out += "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nevil";
        break;
      case 11:
        out += "HTTP/1.1 200 OK\r\n" + length + "\r\n" + (without ? "" : body) +
               "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
        break;
      case 12:
        out += "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n";
        break;
      case 13:
        out += "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n";
        break;
      case 14:
        out += "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe";
        connection.switched = true;
        break;
      default:
        out += "HTTP/1.1 100 Continue\r\n\r\n";
        return;
    }
    // The next one on this connection.
    const std::optional<PlainMessage> whole = read_message(connection.socket.in());
    if (whole && !connection.until_close) {
      connection.socket.in().erase(0, whole->size);
      connection.request = nullptr;
    }
  }

  // --- the end

  void end() {
    for (Client& client : clients_) {
      client.socket.receive();
      take_answers(client);
      client.socket.reset();
    }
    for (auto& of_replica : connections_) {
      for (Connection& connection : of_replica) connection.socket.reset();
    }
    const bool all_left = proxy_.until([&] {
      for (StepListener& listener : listeners_) {
        while (listener.accept().open()) continue;
      }
      proxy_.advance(std::chrono::minutes(5));
      return proxy_.connections() == 0 && proxy_.shard().upstreams().open_connections() == 0;
    });
    check(all_left);
    check(proxy_.in_flight() == 0);
    check(proxy_.held_bytes() == 0);
    check(proxy_.metrics().in_flight.value() == 0);
  }

  std::array<StepListener, kReplicas>& listeners_;
  SteppedProxy proxy_;
  std::map<std::size_t, Request> requests_;
  std::array<Client, kClients> clients_;
  std::array<std::array<Connection, kConnections>, kReplicas> connections_;
};

}  // namespace
}  // namespace pointsman::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pointsman::test;
  static std::array<StepListener, kReplicas> listeners;
  if (size > 2'000) return 0;
  Exchanges(listeners).run(Script(data, size));
  return 0;
}
