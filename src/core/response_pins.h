#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/time.h"
#include "core/replica.h"

namespace pointsman {

// Which replica made which stored response (OpenAI's Responses API keeps the conversation on the
// server): response id → replica, least recently used first out, bounded in number and age.
//
// Ids come as 64-bit hashes. Not thread-safe.
class ResponsePins {
 public:
  struct Options {
    std::size_t capacity = 100'000;
    Duration max_age = std::chrono::hours(1);
  };
  explicit ResponsePins(const Options& options) : options_(options) {}

  void learn(std::uint64_t response_id, ReplicaIndex replica, TimePoint now);
  [[nodiscard]] std::optional<ReplicaIndex> find(std::uint64_t response_id, TimePoint now);
  void forget(ReplicaIndex replica);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t response_id;
    ReplicaIndex replica;
    TimePoint learnt_at;
  };
  Options options_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Entry>::iterator> by_id_;
};

}  // namespace pointsman
