#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/replica.h"
#include "net/http_client.h"
#include "runtime/fleet.h"

namespace pointsman {

// The replicas to follow, as Fleet::replicas() lists them.
using Targets = std::vector<std::pair<ReplicaIndex, std::shared_ptr<const ReplicaSpec>>>;

// Brings what a feed keeps of each replica up to date: kept where the replica is as it was, dropped
// where it left or changed, made as Target(feed, index, spec) where it is new. Returns the new
// ones. `dropped` is called with the index of each that was dropped.
template <typename Target, typename Feed, typename Dropped>
std::vector<Target*> follow_targets(std::map<ReplicaIndex, std::unique_ptr<Target>>& followed,
                                    Feed& feed, const Targets& targets, Dropped&& dropped) {
  std::vector<Target*> fresh;
  std::map<ReplicaIndex, std::unique_ptr<Target>> former;
  former.swap(followed);
  for (const auto& [index, spec] : targets) {
    const auto known = former.find(index);
    std::unique_ptr<Target>& place = followed[index];
    if (known != former.end() && known->second->spec == spec) {
      place = std::move(known->second);
      continue;
    }
    place = std::make_unique<Target>(feed, index, spec);
    fresh.push_back(place.get());
  }
  for (const auto& [index, target] : former) {
    if (target != nullptr) dropped(index);
  }
  return fresh;
}

template <typename Target, typename Feed>
std::vector<Target*> follow_targets(std::map<ReplicaIndex, std::unique_ptr<Target>>& followed,
                                    Feed& feed, const Targets& targets) {
  return follow_targets(followed, feed, targets, [](ReplicaIndex) {});
}

// A GET to a replica, below its path prefix and with its key. Port 0: the replica's own.
HttpGetRequest request_to(const ReplicaSpec& spec, std::uint16_t port, std::string_view path);

// The text of an error answer for a person: "503 Loading model". The body's error message is taken
// where it has one, cut to a line.
std::string describe_answer(const HttpGetResult& result);

}  // namespace pointsman
