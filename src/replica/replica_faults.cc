// The parts of Replica that make it misbehave, and say what it saw.

#include <simdjson.h>

#include "base/json_text.h"
#include "base/log.h"
#include "replica/exchange.h"
#include "replica/replica.h"

namespace pointsman {

void Replica::answer_with(const Fault& fault, const HttpResponse& response) {
  if (fault.before_head) return break_off(fault.then, response);
  if (fault.raw) {
    return write_pieces(std::make_shared<const std::string>(*fault.raw), 0, fault, response);
  }
  const std::string body = fault.body.value_or("");
  const int status = fault.status.value_or(200);
  if (fault.piece_bytes == 0 && !fault.no_content_length) {
    return response.send(status, fault.content_type, body, fault.headers);
  }
  // Written past the server's framing, which would not be broken on purpose.
  std::string bytes = "HTTP/1.1 " + std::to_string(status) +
                      " Simulated\r\nContent-Type: " + fault.content_type +
                      "\r\nConnection: close\r\n";
  for (const auto& [name, value] : fault.headers) {
    bytes.append(name).append(": ").append(value).append("\r\n");
  }
  if (!fault.no_content_length) {
    bytes.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  }
  bytes.append("\r\n").append(body);
  write_pieces(std::make_shared<const std::string>(std::move(bytes)), 0, fault, response);
}

void Replica::write_pieces(const std::shared_ptr<const std::string>& bytes, std::size_t from,
                           const Fault& fault, const HttpResponse& response) {
  const std::size_t size = fault.piece_bytes == 0 ? bytes->size() : fault.piece_bytes;
  response.write_raw(std::string_view(*bytes).substr(from, size));
  const std::size_t next = from + size;
  if (next >= bytes->size()) return break_off(fault.then, response);
  const std::uint64_t held = hold(response);
  after(fault.piece_interval, [this, bytes, next, fault, response, held] {
    if (!held_.contains(held)) return;
    let_go(held);
    write_pieces(bytes, next, fault, response);
  });
}

void Replica::break_off(FaultEnd how, const HttpResponse& response) {
  switch (how) {
    case FaultEnd::kClose:
      return response.close();
    case FaultEnd::kReset:
      return response.reset();
    case FaultEnd::kHang:
      hold(response);
      return;
  }
}

std::uint64_t Replica::hold(const HttpResponse& response) {
  const std::uint64_t held = next_id_++;
  held_.emplace(held, response);
  response.on_gone([this, held] {
    if (held_.erase(held) > 0) ++stats_.cancelled;
  });
  return held;
}

void Replica::let_go(std::uint64_t held) {
  held_.erase(held);
}

void Replica::after(Duration delay, std::function<void()> task) {
  const auto timer = std::make_shared<asio::steady_timer>(reactor_.io(), delay);
  timer->async_wait(
      [timer, task = std::move(task), alive = std::weak_ptr<bool>(alive_)](std::error_code error) {
        if (!error && !alive.expired()) task();
      });
}

void Replica::change_state(std::string_view body, const HttpResponse& response) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(simdjson::padded_string(body)).get(root) != simdjson::SUCCESS) {
    return response.send(400, "application/json", R"({"detail":"expected a JSON object"})");
  }
  double refuse_s = 0;
  bool reset_all = false;
  for (const auto& [key, value] : root) {
    bool flag = false;
    std::uint64_t number = 0;
    bool ok = true;
    if (key == "health_status") {
      ok = value.get(number) == simdjson::SUCCESS && number >= 200 && number <= 599;
      if (ok) health_status_ = static_cast<int>(number);
    } else if (key == "paused" || key == "asleep") {
      ok = value.get(flag) == simdjson::SUCCESS;
      if (ok) driver_.pause(flag);
      if (ok && key == "asleep") asleep_ = flag;
    } else if (key == "refuse_s") {
      ok = value.get(refuse_s) == simdjson::SUCCESS && refuse_s > 0 && refuse_s <= 86'400;
    } else if (key == "reset_all") {
      ok = value.get(reset_all) == simdjson::SUCCESS;
    } else if (key == "lose_kv_batches") {
      ok = kv_publisher_ && value.get(number) == simdjson::SUCCESS;
      if (ok) kv_publisher_->lose(number);
    } else {
      ok = false;
    }
    if (!ok) {
      return response.send(
          400, "application/json",
          R"({"detail":)" + json_string("state: bad key or value: " + std::string(key)) + "}");
    }
  }
  response.send(200, "application/json", "{}");
  if (refuse_s == 0 && !reset_all) return;
  const auto listen_again = [this, port = server_.port()] {
    if (Result<void> again = server_.listen(address_, port); !again) {
      log_error(again.error().message);
    }
  };
  // From a fresh stack: this request's own connection is among those that are cut.
  after(Duration{}, [this, reset_all, refuse_s, listen_again] {
    if (reset_all) {
      server_.cut_all();
    } else {
      server_.stop_listening();
    }
    after(from_seconds(refuse_s), listen_again);
  });
}

std::string Replica::debug_page() const {
  const ReplicaStats now = stats();
  const sim::EngineState engine = driver_.engine().state();
  std::string out = "{";
  const auto field = [&out](std::string_view name, std::uint64_t value) {
    out.append(out.size() > 1 ? ",\"" : "\"").append(name).append("\":");
    out.append(std::to_string(value));
  };
  field("received", now.received);
  field("completed", now.completed);
  field("cancelled", now.cancelled);
  field("faults", now.faults);
  field("in_flight", now.in_flight);
  field("connections", server_.connections());
  field("running", engine.running);
  field("waiting", engine.waiting);
  if (kv_publisher_) {
    field("kv_batches", kv_publisher_->published());
    field("kv_blocks", kv_journal_.held());
  }
  out.push_back('}');
  return out;
}

std::string Replica::last_request_bytes() const {
  std::string out = last_request_->method + " " + last_request_->target + "\r\n";
  for (const auto& [name, value] : last_request_->headers) {
    out.append(name).append(": ").append(value).append("\r\n");
  }
  return out.append("\r\n").append(last_request_->body);
}

}  // namespace pointsman
