#include "experiments/uniform_fleet.h"

#include <utility>
#include <vector>

#include "sim/chance.h"

namespace pointsman::sim {

Result<UniformFleet> make_uniform_fleet(std::uint32_t replicas, std::uint32_t choices,
                                        const Registry& registry, std::uint64_t seed) {
  PolicySpec policy;
  policy.preset = "least_connections";
  policy.options = {{"choices", static_cast<double>(choices)}, {"avoid_saturated", false}};
  Result<std::unique_ptr<Pipeline>> pipeline = registry.build(policy);
  if (!pipeline) return pipeline.error();
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(std::move(*pipeline));

  UniformFleet fleet;
  fleet.view.pools.resize(1);
  fleet.view.pools[0].name = "general";
  for (ReplicaIndex replica = 0; replica < replicas; ++replica) {
    fleet.view.replicas.push_back({.identity = mixed(replica), .usable = true});
    fleet.view.pools[0].usable.push_back(replica);
  }
  Router::Options options;
  options.seed = seed;
  fleet.router = std::make_unique<Router>(options, std::move(pipelines));
  return fleet;
}

}  // namespace pointsman::sim
