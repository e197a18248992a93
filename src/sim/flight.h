#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "core/ledger.h"
#include "core/replica.h"
#include "sim/request_log.h"
#include "sim/run_log.h"
#include "sim/traffic.h"

namespace pointsman::sim {

// A request on its way.
struct Flight {
  Arrival request;
  std::uint64_t number = 0;
  TimePoint arrived{};
  TimePoint first_token{};
  Charge charge;
  std::uint32_t balancer = 0;
  ReplicaIndex replica = kNoReplica;
  std::uint32_t cached_tokens = 0;
  std::uint32_t predicted_tokens = 0;
  bool measured = false;
  bool lost_once = false;

  // What is measured of it once its answer is complete. Long: above one of the limits.
  [[nodiscard]] RequestLog::Entry entry(TimePoint ended, const SegregationLimits& limits) const;
  // What a run's log is told.
  [[nodiscard]] FinishedRequest finished(TimePoint ended, bool failed) const;
};

// Places for flights, which are used again. A place is the flight's id at its engine.
class Flights {
 public:
  // A flight of which nothing is known yet, in the place of one that has ended or in a new one.
  // References to others end.
  [[nodiscard]] std::uint32_t begin();
  void end(std::uint32_t place) {
    free_.push_back(place);
    --in_flight_;
  }

  [[nodiscard]] Flight& operator[](std::uint32_t place) { return flights_[place]; }
  // Of flights that ended too.
  [[nodiscard]] std::uint32_t places() const { return static_cast<std::uint32_t>(flights_.size()); }
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }

 private:
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  std::uint64_t in_flight_ = 0;
};

}  // namespace pointsman::sim
