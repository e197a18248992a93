#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/time.h"
#include "feeds/models_list.h"
#include "feeds/target.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "runtime/fleet.h"

namespace pointsman {

// Asks the replicas which models they serve, tells the fleet, and keeps the merged list.
//
// A replica is asked when it has become ready and each minute from then on, and whenever a client
// names a model that nobody knows. An answer that is no list (401 without a key, 404) means that
// the replica has none, and it is then taken to serve anything; while it does not answer at all,
// its last list stays.
//
// For the reactor's thread, but for refresh() and append_merged(), which are thread-safe.
class ModelsFeed {
 public:
  struct Options {
    Duration interval = std::chrono::seconds(60);
    Duration timeout = std::chrono::seconds(2);
    Duration least_between_refreshes = std::chrono::seconds(1);
  };

  ModelsFeed(Reactor& reactor, Resolver& resolver, Fleet& fleet, const Options& options);
  ~ModelsFeed();

  // The replicas from now on.
  void follow(const Targets& targets);

  // Asks the replicas that have become ready since the last call, and those whose time has come.
  // Called about every 100 ms.
  void tick();

  // Asks all ready replicas again and calls `done` on `caller`'s thread when all have answered or
  // given up. At most once a second: in between, `done` is called with what is known. Calls that
  // come while they are being asked wait for the same answers. Thread-safe; the feed must be
  // destroyed before `caller`.
  void refresh(Reactor& caller, std::function<void()> done);

  // Appends the body of GET /v1/models. Thread-safe.
  void append_merged(std::string& out) const;

 private:
  struct Target;
  struct Waiting {
    Reactor* caller;
    std::function<void()> done;
  };

  void ask(Target& target);
  void on_result(Target& target, const HttpGetResult& result);
  void refresh_here(Waiting waiting);
  void answer_waiting();
  void publish();

  Reactor& reactor_;
  Resolver& resolver_;
  Fleet& fleet_;
  const Options options_;
  std::map<ReplicaIndex, std::unique_ptr<Target>> targets_;
  std::vector<Waiting> waiting_;
  TimePoint last_refresh_{};

  mutable std::mutex mutex_;
  std::shared_ptr<const std::string> merged_;  // under mutex_
  // Guards tasks posted by refresh() that run when the feed has gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pointsman
