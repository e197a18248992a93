#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/prefix_source.h"
#include "sim/content.h"
#include "sim/fifo.h"
#include "sim/virtual_engine.h"

namespace pointsman::sim {

// One predicting index for several balancers.
class SharedIndex final : public PrefixSource {
 public:
  explicit SharedIndex(const PrefixIndex::Options& options) : index_(options) {}

  void match(const Features& features, PrefixMatches& out) override {
    index_.match(features.blocks, features.session_key, out);
  }
  void sent(const Features& features, ReplicaIndex replica) override {
    index_.insert(features.blocks, features.session_key, replica);
  }
  void forget(ReplicaIndex replica) override { index_.forget(replica); }
  void set_capacity(ReplicaIndex replica, std::uint64_t blocks) override {
    index_.set_capacity(replica, blocks);
  }

 private:
  PrefixIndex index_;
};

// What the replicas' caches really hold, now or a delay ago. Which runs several sessions share it
// learns as the predicting index does: from what was sent.
class ExactIndex final : public PrefixSource {
 public:
  ExactIndex(std::span<VirtualEngine> engines, Duration delay);

  // With a delay it goes by what it is told with note(), else it looks into the caches.
  [[nodiscard]] bool is_delayed() const { return delay_ > Duration{}; }
  // What the replica's cache has gained and lost, in the order of time.
  void note(ReplicaIndex replica, std::span<const KvChange> changes);

  // What the request that is decided next, at `now`, says. All engines have advanced to then, and
  // what their caches noted has been told.
  void set_content(const Content& content, std::uint32_t prompt_tokens, TimePoint now);

  void match(const Features& features, PrefixMatches& out) override;
  void sent(const Features& features, ReplicaIndex replica) override;
  void forget(ReplicaIndex replica) override;
  void set_capacity(ReplicaIndex, std::uint64_t) override {}

 private:
  struct Seen {
    std::uint64_t session = 0;
    bool shared = false;
  };
  // Of a replica, by its events.
  struct Cache {
    Fifo<KvChange> changes;                                 // on their way
    std::unordered_map<std::uint64_t, std::uint32_t> held;  // by run: blocks
  };

  [[nodiscard]] std::uint32_t held_blocks(ReplicaIndex replica);

  std::span<VirtualEngine> engines_;
  Duration delay_;
  TimePoint now_{};
  std::vector<Cache> caches_;                     // by replica; none without a delay
  std::unordered_map<std::uint64_t, Seen> seen_;  // by run, of those that can be shared
  std::vector<ChainRun> chain_;                   // of the request
};

}  // namespace pointsman::sim
