#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "core/fleet_view.h"
#include "core/registry.h"
#include "core/router.h"

namespace pointsman::sim {

// Equal replicas in one pool before one router, for models in which a replica is no engine but a
// queue or a bin.
struct UniformFleet {
  FleetView view;
  std::unique_ptr<Router> router;
};

// The router has the preset `least_connections` with so many choices. Load never makes a replica
// count as saturated, which no closed form knows of.
[[nodiscard]] Result<UniformFleet> make_uniform_fleet(std::uint32_t replicas, std::uint32_t choices,
                                                      const Registry& registry, std::uint64_t seed);

}  // namespace pointsman::sim
