#include "core/response_pins.h"

#include <iterator>

namespace pointsman {

void ResponsePins::learn(std::uint64_t response_id, ReplicaIndex replica, TimePoint now) {
  if (options_.capacity == 0) return;
  const auto known = by_id_.find(response_id);
  if (known != by_id_.end()) {
    *known->second = {response_id, replica, now};
    entries_.splice(entries_.begin(), entries_, known->second);
    return;
  }
  if (entries_.size() >= options_.capacity) {
    // The last entry's node is used again, so that a full map does not allocate a list node.
    by_id_.erase(entries_.back().response_id);
    entries_.back() = {response_id, replica, now};
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
  } else {
    entries_.push_front({response_id, replica, now});
  }
  by_id_.emplace(response_id, entries_.begin());
}

std::optional<ReplicaIndex> ResponsePins::find(std::uint64_t response_id, TimePoint now) {
  const auto known = by_id_.find(response_id);
  if (known == by_id_.end()) return std::nullopt;
  if (now - known->second->learnt_at > options_.max_age) {
    entries_.erase(known->second);
    by_id_.erase(known);
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, known->second);
  return known->second->replica;
}

void ResponsePins::forget(ReplicaIndex replica) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->replica == replica) {
      by_id_.erase(entry->response_id);
      entry = entries_.erase(entry);
    } else {
      ++entry;
    }
  }
}

}  // namespace pointsman
