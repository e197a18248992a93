#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "core/decision.h"
#include "core/replica.h"
#include "sim/load_meter.h"
#include "sim/request_log.h"
#include "sim/run_result.h"
#include "sim/scenario.h"
#include "sim/virtual_engine.h"

namespace pointsman::sim {

// Measures a run between begin() and end(): what arrives then counts, however late it ends. Before
// any call with engines, these have advanced to `now`.
class RunMeter {
 public:
  // `pools` by replica.
  RunMeter(const MeasureSpec& spec, std::vector<PoolIndex> pools);

  void reserve(std::size_t requests) { requests_.reserve(requests); }
  void begin(TimePoint now, std::span<const VirtualEngine> engines);
  void end(TimePoint now, std::span<const VirtualEngine> engines);
  // Looks at the replicas, at regular times.
  void sample(TimePoint now, std::span<const VirtualEngine> engines);
  [[nodiscard]] bool measuring() const { return measuring_; }

  // Of measured requests: one arrived; it was sent; it was lost, and is sent again; it failed.
  void arrived(bool follow_up);
  void sent(const Decision& decision);
  void retried() { ++retried_; }
  void failed() { ++failed_; }
  struct Tokens {
    std::uint32_t prompt = 0;
    std::uint32_t cached = 0;     // at first admission
    std::uint32_t known = 0;      // that an earlier request had as well
    std::uint32_t predicted = 0;  // that the balancer believed cached
  };
  void finished(const RequestLog::Entry& entry, const Tokens& tokens);

  // Of all requests: one more or less in flight on a replica; one is complete.
  void in_flight(ReplicaIndex replica, int by, TimePoint now) { load_.change(replica, by, now); }
  void completed() { completions_ += measuring_ ? 1 : 0; }

  // Completions per second.
  [[nodiscard]] double completion_rate() const;
  // All measures that it knows. Once, at the end.
  void write(RunResult& result);

 private:
  // What queues up at one pool.
  struct Backlog {
    std::vector<double> in_flight;  // at each sample, or every so many
    std::vector<double> waiting;    // of these, not yet running
    std::vector<double> generated;  // tokens by these engines, so far
    std::uint64_t sent = 0;         // of measured requests
  };

  // Requests in flight per second.
  [[nodiscard]] double growth(const Backlog& backlog) const;
  [[nodiscard]] bool outgrown(const Backlog& backlog) const;
  [[nodiscard]] static bool is_at_its_limit(const Backlog& backlog);

  const MeasureSpec& spec_;
  bool measuring_ = false;
  TimePoint begun_{};
  TimePoint sampled_{};  // the last time
  RequestLog requests_;
  LoadMeter load_;
  EngineTotal busy_{};
  std::uint64_t samples_ = 0;
  std::uint64_t stride_ = 1;            // so many samples for one of the backlogs'
  double kv_ = 0;                       // sum over samples of the mean over replicas
  std::vector<PoolIndex> pools_;        // by replica
  std::vector<Backlog> backlogs_;       // by pool
  std::vector<std::uint64_t> sent_to_;  // measured requests, by replica
  std::uint64_t arrivals_ = 0;
  std::uint64_t follow_ups_ = 0;
  std::uint64_t completions_ = 0;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t cached_tokens_ = 0;
  std::uint64_t known_tokens_ = 0;
  std::uint64_t predicted_tokens_ = 0;
  std::uint64_t valve_openings_ = 0;
  std::uint64_t all_saturated_ = 0;
  std::uint64_t fallbacks_ = 0;
  std::uint64_t retried_ = 0;
  std::uint64_t failed_ = 0;
};

}  // namespace pointsman::sim
