#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "core/engine_caches.h"
#include "core/token_chain.h"
#include "feeds/kv_event_link.h"
#include "feeds/target.h"
#include "kv_events/event_stream.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"

namespace pointsman {

// Follows the replicas' KV cache events over ZeroMQ and tells the router which blocks each holds
// and how far that can be believed (kv_events/event_stream.h).
//
// Publishers of vLLM and SGLang either listen, and are connected to on a port of the replica's
// host, or connect to where we listen; then the message's topic tells whose it is. Each
// data-parallel rank is a publisher of its own, on the next port. What was missed is asked for on
// the replay port.
//
// A publisher is trusted only while it is known to be heard: while there is a connection to it, and
// where requests make its engine store blocks, as long as it tells of some.
//
// It has a thread of its own, for events come in bursts (an engine under load publishes some
// hundred batches a second, a replay ten thousand) and nothing else shall wait for them. The router
// is told in slices of 64 keys, so that no decision waits longer than a few microseconds.
//
// Thread-safe. Outlives whoever calls it; nothing of the fleet or the router is used after the
// destructor.
class KvEventFeed {
 public:
  struct Options {
    // Connects to this port of each replica's host; 0: only to replicas with a port of their own.
    std::uint16_t port = 0;
    std::string bind;               // ZeroMQ endpoint where engines connect; empty: none
    std::uint16_t replay_port = 0;  // on each replica's host; 0: nothing can be asked for again
    std::string topic;              // only topics that begin so
    std::uint16_t ranks = 1;        // data-parallel ranks of each replica
    Duration replay_timeout = std::chrono::seconds(5);  // from asking to the last answer
    // A replica that computes prompts for so long, and tells of no block, is not heard.
    Duration longest_silence = std::chrono::seconds(10);
    std::size_t table_max_bytes = std::size_t{512} << 20;
    std::uint32_t block_tokens = 16;  // of the router's index
    std::uint64_t seed = 1;
    // The name that the router's token chains have for a model; empty: its own.
    std::function<std::string(std::string_view)> canonical_model;
  };

  // `chain` outlives it.
  KvEventFeed(Fleet& fleet, SharedRouter& router, const TokenChain& chain, Options options);
  ~KvEventFeed();
  KvEventFeed(const KvEventFeed&) = delete;
  KvEventFeed& operator=(const KvEventFeed&) = delete;

  // Begins. Error: the address to listen on cannot be had.
  Result<void> start();
  // Where engines connect, as it was bound; empty: nowhere.
  [[nodiscard]] std::string bound_endpoint(std::uint16_t rank = 0) const;

  // The replicas from now on.
  void follow(const Targets& targets);
  // What the replica's metrics page says of its cache. 0 blocks: unknown.
  void engine_said(ReplicaIndex replica, std::uint64_t blocks, std::optional<bool> caches);
  // The replica cannot be reached: what it held is not believed until it is back.
  void gone(ReplicaIndex replica);
  // It is back, and the router has forgotten it.
  void forgot(ReplicaIndex replica);

  struct Status {
    ReplicaIndex replica = kNoReplica;
    std::uint16_t rank = 0;
    Trust trust = Trust::kNone;
    std::string why;  // not trusted, for a person; empty where it is
    std::array<std::uint64_t, kLinkFaults> faults{};  // of its connection, counted
    std::uint64_t next = 0;                           // number of the batch that is to come
    std::uint64_t blocks = 0;                         // of the engine's, that are known to be held
    std::size_t table_bytes = 0;
    std::uint32_t block_tokens = 0;  // of the engine; 0: not known yet
    std::optional<double> delay_s;   // of the last batch, from its making to here
    EventStream::Counts batches;
    EngineBlocks::Counts events;
  };
  // Of every publisher, by replica and rank; at most a fifth of a second old.
  [[nodiscard]] std::vector<Status> status() const;
  // Messages on our address whose topic names no replica, or that are none of these.
  [[nodiscard]] std::uint64_t strays() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace pointsman
