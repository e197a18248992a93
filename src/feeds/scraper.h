#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "feeds/target.h"
#include "net/reactor.h"
#include "net/resolver.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"
#include "signals/engine_metrics.h"

namespace pointsman {

// Reads each replica's metrics page every interval, with a tenth of jitter, and tells the router
// what it says; the fleet is told which engine it is and whether it is awake.
//
// A page that cannot be had or read changes nothing: the last report grows old by itself, and after
// three intervals it says nothing. The first time a replica answers without a page that is
// understood, one line is logged; not for 5xx, which its health tells. Where the usual /metrics is
// not that page, trtllm-serve's /prometheus/metrics is tried.
//
// For the reactor's thread.
class Scraper {
 public:
  struct Options {
    Duration interval = std::chrono::seconds(1);
    Duration timeout = std::chrono::seconds(1);
    std::size_t max_body = std::size_t{4} << 20;
    std::vector<EngineMetrics::OwnMetric> own_metrics;
    std::uint64_t seed = 1;
  };

  Scraper(Reactor& reactor, Resolver& resolver, Fleet& fleet, SharedRouter& router,
          const Options& options);
  ~Scraper();

  // The replicas from now on: new ones are scraped at once, missing ones no more.
  void follow(const Targets& targets);

  // Called with every good reading.
  void on_reading(std::function<void(ReplicaIndex, const EngineReading&)> listener) {
    listener_ = std::move(listener);
  }

  // What came of the scrapes of one replica.
  struct Status {
    TimePoint last_good{};  // TimePoint{}: none yet
    std::uint64_t good = 0;
    std::uint64_t failed = 0;
    std::string problem;    // of the last scrape; empty: all of it went well
    EngineReading reading;  // of the last good one
  };
  [[nodiscard]] std::optional<Status> status(ReplicaIndex replica) const;

 private:
  struct Target;

  void scrape(Target& target);
  void on_result(Target& target, const HttpGetResult& result);
  void apply(Target& target, const EngineReading& reading);
  void failed(Target& target, std::string problem, bool answered);

  Reactor& reactor_;
  Resolver& resolver_;
  Fleet& fleet_;
  SharedRouter& router_;
  const Options options_;
  const EngineMetrics metrics_;
  std::function<void(ReplicaIndex, const EngineReading&)> listener_;
  Rng rng_;
  std::map<ReplicaIndex, std::unique_ptr<Target>> targets_;
};

// The reading in the core's terms. `window` was opened just before the report was asked for.
[[nodiscard]] Signals to_signals(const EngineReading& reading, ReportWindow window,
                                 TimePoint observed_at, Duration max_age);

}  // namespace pointsman
