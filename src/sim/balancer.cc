#include "sim/balancer.h"

#include <utility>

namespace pointsman::sim {

void Balancer::poll(ReplicaIndex replica, Signals signals) {
  signals.window = router_.report_opened(replica);
  if (log_ != nullptr) log_->report_opened(number_, replica);
  reports_.push({replica, signals});
  ++polled_;
}

void Balancer::arrive(TimePoint now) {
  const std::uint64_t until = rounds_.front();
  rounds_.pop();
  for (; arrived_ < until; ++arrived_) {
    Report& report = reports_.front();
    report.signals.observed_at = now;
    router_.report_applied(report.replica, report.signals);
    if (log_ != nullptr) log_->report_applied(number_, report.replica, report.signals);
    reports_.pop();
  }
}

Decision Balancer::decide(const Features& features, const FleetView& fleet,
                          std::span<const ReplicaIndex> excluded, TimePoint now) {
  Decision decision = router_.decide(features, fleet, excluded, now);
  if (log_ != nullptr) log_->decided(number_, features, fleet, excluded, now, decision);
  return decision;
}

void Balancer::first_token(Charge& charge, TimePoint now) {
  router_.first_token(charge, now);
  if (log_ != nullptr) log_->first_token(number_, charge.entry(), now);
}

void Balancer::finished(Charge charge, const Outcome& outcome, TimePoint now) {
  if (log_ != nullptr) log_->finished(number_, charge.entry(), outcome, now);
  router_.finished(std::move(charge), outcome, now);
}

void Balancer::forget(ReplicaIndex replica) {
  router_.forget(replica);
  if (log_ != nullptr) log_->forgotten(number_, replica);
}

std::span<const PeerLoad> Balancer::tell(TimePoint now) {
  told_.clear();
  router_.own_loads(now, told_);
  return told_;
}

void Balancer::hear(PeerIndex peer, std::span<const PeerLoad> loads) {
  router_.peer_applied(peer, loads);
  if (log_ != nullptr) log_->peer_applied(number_, peer, loads);
}

}  // namespace pointsman::sim
