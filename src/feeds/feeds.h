#pragma once

#include <functional>
#include <memory>

#include "base/time.h"
#include "feeds/health.h"
#include "feeds/kv_event_feed.h"
#include "feeds/models.h"
#include "feeds/scraper.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"

namespace pointsman {

// All that is learnt of the replicas from outside of requests: probes, metrics pages, model lists.
// It lives on the housekeeping reactor, follows the fleet's members, and has the fleet's clockwork
// (ends of ejections) turn. Nothing that serves a request ever waits for it.
//
// Created and destroyed on the reactor's thread, or while that does not run.
class Feeds {
 public:
  struct Options {
    Prober::Options health;
    Scraper::Options signals;
    ModelsFeed::Options models;
  };

  // `last_byte`: see Prober; may be empty. `kv_events` is told of the replicas and of what their
  // metrics pages say of their caches; may be null.
  Feeds(Reactor& reactor, Resolver& resolver, Fleet& fleet, SharedRouter& router,
        const Options& options, Prober::LastByte last_byte, KvEventFeed* kv_events = nullptr);
  ~Feeds();
  Feeds(const Feeds&) = delete;
  Feeds& operator=(const Feeds&) = delete;

  // Calls back once, on the reactor's thread, when every replica's first probe has ended, or after
  // `at_most`: the moment to open the data port.
  void when_probed(Duration at_most, std::function<void()> callback);

  [[nodiscard]] Scraper& scraper() { return scraper_; }
  [[nodiscard]] ModelsFeed& models() { return models_; }

 private:
  void tick();

  Reactor& reactor_;
  Fleet& fleet_;
  Prober prober_;
  Scraper scraper_;
  ModelsFeed models_;
  KvEventFeed* const kv_events_;
  Timer tick_timer_;
  std::uint64_t generation_ = 0;
  TimePoint probed_deadline_{};
  std::function<void()> on_probed_;
};

}  // namespace pointsman
