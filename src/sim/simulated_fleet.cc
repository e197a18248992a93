#include "sim/simulated_fleet.h"

#include <iterator>
#include <string_view>

#include "sim/chance.h"

namespace pointsman::sim {
namespace {

constexpr PoolPurpose kPurposes[] = {PoolPurpose::kGeneral, PoolPurpose::kLongContext,
                                     PoolPurpose::kLongGeneration};

std::string_view pool_name(PoolPurpose purpose) {
  switch (purpose) {
    case PoolPurpose::kGeneral:
      return "general";
    case PoolPurpose::kLongContext:
      return "long_context";
    case PoolPurpose::kLongGeneration:
      return "long_generation";
  }
  return "general";
}

}  // namespace

SimulatedFleet::SimulatedFleet(const Scenario& scenario, TimePoint start)
    : scenario_(scenario), reporting_(scenario.replicas.size(), true) {
  engines_.reserve(scenario.replicas.size());
  for (const ReplicaSpec& spec : scenario.replicas) {
    const PoolPurpose purpose = scenario.segregated ? spec.pool : PoolPurpose::kGeneral;
    engines_.emplace_back(spec.engine);
    if (spec.slowness != 1) engines_.back().slow_down(spec.slowness, start);
    view_.replicas.push_back({.identity = mixed(engines_.size()),
                              .weight = spec.weight,
                              .pool = static_cast<PoolIndex>(purpose),
                              .usable = true});
  }
  for (std::size_t i = 0; i < (scenario.segregated ? std::size(kPurposes) : 1); ++i) {
    PoolView& pool = view_.pools.emplace_back();
    pool.name = pool_name(kPurposes[i]);
    pool.purpose = kPurposes[i];
  }
  for (const FaultSpec& fault : scenario.faults) {
    if (fault.kind == FaultKind::kJoins) view_.replicas[fault.replica].usable = false;
  }
  rebuild_view();
}

std::vector<PoolIndex> SimulatedFleet::pools() const {
  std::vector<PoolIndex> pools;
  for (const Replica& replica : view_.replicas) pools.push_back(replica.pool);
  return pools;
}

void SimulatedFleet::set_alive(ReplicaIndex replica, bool alive) {
  view_.replicas[replica].usable = alive;
  rebuild_view();
}

Signals SimulatedFleet::signals(ReplicaIndex replica, Duration max_age, TimePoint now) const {
  const EngineState state = engines_[replica].state(now);
  Signals signals;
  signals.max_age = max_age;
  signals.kv_usage = static_cast<float>(state.kv_usage);
  signals.running = static_cast<float>(state.running);
  signals.waiting = static_cast<float>(state.waiting);
  signals.kv_capacity_tokens = scenario_.replicas[replica].engine.capacity_tokens();
  signals.block_tokens = kBlockTokens;
  return signals;
}

void SimulatedFleet::rebuild_view() {
  ++view_.generation;
  for (PoolView& pool : view_.pools) pool.usable.clear();
  for (ReplicaIndex i = 0; i < view_.replicas.size(); ++i) {
    const Replica& replica = view_.replicas[i];
    if (replica.usable) view_.pools[replica.pool].usable.push_back(i);
  }
}

}  // namespace pointsman::sim
