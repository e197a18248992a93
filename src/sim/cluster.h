#pragma once

#include <cstdint>

#include "core/registry.h"
#include "sim/run_log.h"
#include "sim/run_result.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Runs the scenario under the arm's policy in virtual time: discrete events, the shipped decision
// core in every balancer, and modelled engines. A pure function: the same arguments give the same
// result, bit for bit; and the same seed gives every policy the same conversations at the same
// times (as far as answers do not decide when the next turn comes).
//
// `log` may follow what happens. Throws std::invalid_argument where the policy cannot be built, the
// scenario has no replica, or its trace cannot be read.
[[nodiscard]] RunResult run(const Scenario& scenario, const Arm& arm, const Registry& registry,
                            std::uint64_t seed, RunLog* log = nullptr);

// The seed of a balancer's own chance in a run with `seed`: what repeats its decisions.
[[nodiscard]] std::uint64_t balancer_seed(std::uint64_t seed, std::uint32_t balancer);

}  // namespace pointsman::sim
