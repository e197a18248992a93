#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zmq.h>

namespace pointsman::test {

// An engine's publisher of cache events as vLLM and SGLang have it: a PUB socket that listens or
// connects, a buffer of the last batches, and a ROUTER socket that replays them, on a thread of its
// own.
class EventPublisher {
 public:
  struct Options {
    std::string connect;  // endpoint to connect to; empty: listens on a free port
    std::string topic;
    bool replay = true;
    bool topic_in_replay = true;   // as vLLM since 0.32; SGLang and older ones do without
    std::string endless_replay{};  // a batch that replays repeat for ever; empty: they end
    std::size_t buffer = 10'000;
    std::uint16_t port = 0;         // listen here; 0: any
    std::uint16_t replay_port = 0;  // likewise
  };

  explicit EventPublisher(Options options) : options_(std::move(options)) {
    context_ = zmq_ctx_new();
    publisher_ = zmq_socket(context_, ZMQ_XPUB);
    set_linger(publisher_);
    if (options_.connect.empty()) {
      port_ = bind(publisher_, options_.port);
    } else {
      zmq_connect(publisher_, options_.connect.c_str());
    }
    if (options_.replay) {
      router_ = zmq_socket(context_, ZMQ_ROUTER);
      set_linger(router_);
      replay_port_ = bind(router_, options_.replay_port);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~EventPublisher() {
    stopping_ = true;
    thread_.join();
    zmq_close(publisher_);
    if (router_ != nullptr) zmq_close(router_);
    zmq_ctx_term(context_);
  }
  EventPublisher(const EventPublisher&) = delete;
  EventPublisher& operator=(const EventPublisher&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint16_t replay_port() const { return replay_port_; }
  [[nodiscard]] bool subscribed() const { return subscribed_; }
  [[nodiscard]] int replays() const { return replays_; }
  // Every replay's first number, the newest one's.
  [[nodiscard]] std::uint64_t asked_from() const { return asked_from_; }

  // The next batch. `heard` false: as if it had been lost on the way.
  void publish(std::string payload, bool heard = true) {
    const std::lock_guard lock(mutex_);
    outbox_.push_back({std::move(payload), heard});
  }

 private:
  struct Batch {
    std::string payload;
    bool heard;
  };

  static void set_linger(void* socket) {
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
  }
  static std::uint16_t bind(void* socket, std::uint16_t port) {
    const std::string endpoint =
        "tcp://127.0.0.1:" + (port == 0 ? std::string("*") : std::to_string(port));
    if (zmq_bind(socket, endpoint.c_str()) != 0) return 0;
    char bound[128] = {};
    std::size_t size = sizeof(bound);
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size);
    const std::string text = bound;
    return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
  }
  static std::string bytes_of(std::uint64_t number) {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
    return bytes;
  }
  static void send(void* socket, const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i) {
      zmq_send(socket, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    }
  }
  static std::vector<std::string> receive(void* socket) {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) break;
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
      more = zmq_msg_more(&message);
      zmq_msg_close(&message);
    }
    return frames;
  }

  void run() {
    while (!stopping_) {
      zmq_pollitem_t items[] = {{publisher_, 0, ZMQ_POLLIN, 0}, {router_, 0, ZMQ_POLLIN, 0}};
      zmq_poll(items, router_ == nullptr ? 1 : 2, 2);
      if ((items[0].revents & ZMQ_POLLIN) != 0) {
        const std::vector<std::string> frames = receive(publisher_);
        if (!frames.empty() && !frames[0].empty()) subscribed_ = frames[0][0] == 1;
      }
      if (router_ != nullptr && (items[1].revents & ZMQ_POLLIN) != 0) replay(receive(router_));
      for (int i = 0; i < 20 && !endless_for_.empty(); ++i) {
        send(router_, {endless_for_, "", bytes_of(endless_next_++), options_.endless_replay});
      }
      std::deque<Batch> outbox;
      {
        const std::lock_guard lock(mutex_);
        outbox.swap(outbox_);
      }
      for (Batch& batch : outbox) {
        if (batch.heard) send(publisher_, {options_.topic, bytes_of(next_), batch.payload});
        kept_.emplace_back(next_++, std::move(batch.payload));
        if (kept_.size() > options_.buffer) kept_.pop_front();
      }
    }
  }
  // As the engines do: a request has three frames, an empty one between.
  void replay(const std::vector<std::string>& request) {
    if (request.size() != 3 || !request[1].empty() || request[2].size() != 8) return;
    ++replays_;
    std::uint64_t from = 0;
    for (const char c : request[2]) from = (from << 8) | static_cast<std::uint8_t>(c);
    asked_from_ = from;
    if (!options_.endless_replay.empty()) {
      endless_for_ = request[0];
      endless_next_ = from;
      return;
    }
    const auto answer = [&](std::uint64_t number, const std::string& payload, bool end) {
      std::vector<std::string> frames = {request[0], ""};
      if (options_.topic_in_replay) frames.push_back(end ? "" : options_.topic);
      frames.push_back(bytes_of(number));
      frames.push_back(payload);
      send(router_, frames);
    };
    for (const auto& [number, payload] : kept_) {
      if (number >= from) answer(number, payload, false);
    }
    answer(~std::uint64_t{0}, "", true);
  }

  const Options options_;
  void* context_ = nullptr;
  void* publisher_ = nullptr;
  void* router_ = nullptr;
  std::uint16_t port_ = 0;
  std::uint16_t replay_port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> subscribed_{false};
  std::atomic<int> replays_{0};
  std::atomic<std::uint64_t> asked_from_{0};
  std::string endless_for_;  // who gets a replay without an end
  std::uint64_t endless_next_ = 0;
  std::mutex mutex_;
  std::deque<Batch> outbox_;  // under mutex_
  std::deque<std::pair<std::uint64_t, std::string>> kept_;
  std::uint64_t next_ = 0;
  std::thread thread_;
};

}  // namespace pointsman::test
