#pragma once

#include <cstdint>

#include "core/features.h"
#include "core/prefix_index.h"
#include "core/replica.h"

namespace pointsman {

// Where a router learns which replica holds which prompt prefixes, in place of its own predicting
// index: an index that several routers share, or one that follows the engines' own events.
//
// Called in the router's decisions, so under whatever lock they are made.
class PrefixSource {
 public:
  virtual ~PrefixSource() = default;

  // Every holder's match length for the request's blocks, as PrefixIndex::match() gives it. `out`
  // is empty.
  virtual void match(const Features& features, PrefixMatches& out) = 0;
  // The request is being sent to `replica`.
  virtual void sent(const Features& features, ReplicaIndex replica) = 0;
  // The replica restarted or left: its cache is gone.
  virtual void forget(ReplicaIndex replica) = 0;
  // How many blocks the replica's cache can hold; 0: unknown.
  virtual void set_capacity(ReplicaIndex replica, std::uint64_t blocks) = 0;
};

}  // namespace pointsman
