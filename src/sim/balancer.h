#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/router.h"
#include "sim/fifo.h"
#include "sim/run_log.h"

namespace pointsman::sim {

// One router in front of the replicas: the shipped decision core, with the reports on their way to
// it. Every call that the core gets passes here, and goes to the log.
class Balancer {
 public:
  // `log` may be nullptr.
  Balancer(std::uint32_t number, const Router::Options& options,
           std::vector<std::unique_ptr<Pipeline>> pipelines, RunLog* log)
      : number_(number), router_(options, std::move(pipelines)), log_(log) {}

  [[nodiscard]] Needs needs() const { return router_.needs(); }

  // The replica is polled now, and says `signals`. The report arrives with the next arrive().
  void poll(ReplicaIndex replica, Signals signals);
  // All of a round of polls have been made.
  void end_round() { rounds_.push(polled_); }
  // The oldest round of reports arrives.
  void arrive(TimePoint now);

  [[nodiscard]] Decision decide(const Features& features, const FleetView& fleet,
                                std::span<const ReplicaIndex> excluded, TimePoint now);
  void first_token(Charge& charge, TimePoint now);
  void finished(Charge charge, const Outcome& outcome, TimePoint now);
  void forget(ReplicaIndex replica);

  // What the balancer tells its peers now. Valid until the next call.
  [[nodiscard]] std::span<const PeerLoad> tell(TimePoint now);
  void hear(PeerIndex peer, std::span<const PeerLoad> loads);

  [[nodiscard]] const Router& router() const { return router_; }

 private:
  struct Report {
    ReplicaIndex replica;
    Signals signals;
  };

  std::uint32_t number_;
  Router router_;
  RunLog* log_;
  std::vector<PeerLoad> told_;
  Fifo<Report> reports_;        // on their way, oldest first
  std::uint64_t polled_ = 0;    // reports ever polled
  std::uint64_t arrived_ = 0;   // reports ever arrived
  Fifo<std::uint64_t> rounds_;  // polled_ at the end of each round on its way
};

}  // namespace pointsman::sim
