#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/rng.h"
#include "base/time.h"
#include "feeds/target.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "runtime/fleet.h"

namespace pointsman {

// Asks every replica whether it is ready, and tells the fleet.
//
// GET on the readiness path each interval with a tenth of jitter, one in flight per replica, each
// on a connection of its own; the first at once. Where that path is answered with 404 or 405, which
// engines without a health path do, GET /v1/models takes its place, and 401 or 403 there count as
// alive: the key is for clients. That is tried anew when the replica refuses a connection, since it
// may come back as another engine.
//
// A probe that finds no descriptor, port or memory in the router itself tells the fleet nothing.
//
// A probe never asks for a generation. For the reactor's thread.
class Prober {
 public:
  struct Options {
    Duration interval = std::chrono::seconds(1);
    Duration timeout = std::chrono::seconds(5);
    std::uint64_t seed = 1;
  };
  // When a replica last delivered a byte of an answer, to anyone. A probe that times out while it
  // did found a busy replica, not a dead one.
  using LastByte = std::function<TimePoint(ReplicaIndex)>;

  Prober(Reactor& reactor, Resolver& resolver, Fleet& fleet, const Options& options,
         LastByte last_byte);
  ~Prober();

  // The replicas from now on: new ones are probed at once, missing ones no more.
  void follow(const Targets& targets);

  // Whether every replica has had the answer to a probe, whatever it was.
  [[nodiscard]] bool all_probed() const;

 private:
  struct Target;

  void probe(Target& target);
  void on_result(Target& target, const HttpGetResult& result);
  void probe_again(Target& target);

  Reactor& reactor_;
  Resolver& resolver_;
  Fleet& fleet_;
  const Options options_;
  const LastByte last_byte_;
  Rng rng_;
  std::map<ReplicaIndex, std::unique_ptr<Target>> targets_;
  bool lacking_ = false;  // the last probe could not be sent for a lack of the router's own
};

}  // namespace pointsman
