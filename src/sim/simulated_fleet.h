#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/time.h"
#include "core/fleet_view.h"
#include "core/replica.h"
#include "core/signals.h"
#include "sim/scenario.h"
#include "sim/virtual_engine.h"

namespace pointsman::sim {

// The replicas of a run: their engines, and what the balancers see of them. Replicas that a fault
// lets join are not alive at first.
class SimulatedFleet {
 public:
  // `scenario` must outlive it.
  explicit SimulatedFleet(const Scenario& scenario, TimePoint start);

  [[nodiscard]] std::size_t size() const { return engines_.size(); }
  [[nodiscard]] std::span<VirtualEngine> engines() { return engines_; }
  [[nodiscard]] VirtualEngine& engine(ReplicaIndex replica) { return engines_[replica]; }
  [[nodiscard]] const FleetView& view() const { return view_; }
  // By replica.
  [[nodiscard]] std::vector<PoolIndex> pools() const;

  // Whether it can be sent to. The balancers know at once.
  void set_alive(ReplicaIndex replica, bool alive);
  // Whether polls of it succeed, were it alive.
  void set_reporting(ReplicaIndex replica, bool reporting) { reporting_[replica] = reporting; }
  [[nodiscard]] bool answers_polls(ReplicaIndex replica) const {
    return view_.replicas[replica].usable && reporting_[replica];
  }
  // What a poll at `now` reads; the engine has advanced to then.
  [[nodiscard]] Signals signals(ReplicaIndex replica, Duration max_age, TimePoint now) const;

 private:
  void rebuild_view();

  const Scenario& scenario_;
  std::vector<VirtualEngine> engines_;
  std::vector<bool> reporting_;
  FleetView view_;
};

}  // namespace pointsman::sim
