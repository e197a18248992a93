#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/asio.h"
#include "net/zmq_socket.h"
#include "replica/kv_event_writer.h"

namespace pointsman {

struct KvPublisherOptions {
  // ZeroMQ endpoints. `events`: listened on where it has a `*` or `::` (or is ipc://), else
  // connected to, as vLLM does; empty: nothing is published. `replay`: listened on; empty: none.
  std::string events;
  std::string replay;
  std::string topic;
  KvLayout layout = KvLayout::kMap;
  KvHashes hashes = KvHashes::kNumbers;
};

// Publishes batches of events as vLLM's ZmqEventPublisher does: messages [topic, number, payload]
// on a PUB socket, numbered from 0; and on a ROUTER socket, to whoever asks [number], the kept
// batches from that one on, then number −1. The array layout's answers have no topic frame, like
// those of the releases that have it.
//
// Memory: what is kept has two limits, and so has what waits for a peer that does not read (see
// ZmqSocket::send()): a subscriber then misses batches, an answer breaks off.
//
// For the io_context's thread.
class KvPublisher {
 public:
  // What can be asked for again: so many batches, and no more bytes unless the last one has more.
  static constexpr std::size_t kKeptBatches = 10'000;
  static constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

  KvPublisher(asio::io_context& io, KvPublisherOptions options);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // Error: an endpoint cannot be had.
  Result<void> start();
  // Where it listens or has connected to; empty: nowhere.
  [[nodiscard]] std::string events_endpoint() const { return events_.endpoint(); }
  [[nodiscard]] std::string replay_endpoint() const {
    return options_.replay.empty() ? std::string() : replay_.endpoint();
  }

  void publish(const KvChanges& changes);
  // So many batches from now on are kept, but do not reach the subscribers.
  void lose(std::uint64_t batches) { to_lose_ = batches; }
  [[nodiscard]] std::uint64_t published() const { return next_; }

 private:
  void wait_for_questions();
  void answer_questions();
  void answer(std::string_view client, std::uint64_t from);

  const KvPublisherOptions options_;
  ZmqContext context_;
  ZmqSocket events_;
  ZmqSocket replay_;
  asio::posix::stream_descriptor readable_;  // of replay_
  std::deque<std::string> kept_;             // the batches before next_
  std::size_t kept_bytes_ = 0;
  std::vector<std::string> frames_;
  std::uint64_t next_ = 0;
  std::uint64_t to_lose_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pointsman
