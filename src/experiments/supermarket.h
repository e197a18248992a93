#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/registry.h"

namespace pointsman::sim {

// The supermarket model: customers arrive in a Poisson process at rate load · queues, look at
// `choices` queues drawn by chance, join the shortest, and are served one after the other for a
// time that is exponential with mean one second. As the number of queues grows, the share of queues
// with at least i customers tends to load^((d^i − 1)/(d − 1)), and the mean time in the system to
//
//   Σ over i >= 1 of load^((d^i − d)/(d − 1)),    for one choice 1/(1 − load)
//
// (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001; Vvedenskaya,
// Dobrushin and Karpelevich 1996).
//
// This is where the simulator and the shipped policy are held against something that neither of
// them made: the events come from the simulator's queue, and the choices from a Router with the
// preset `least_connections`, as they do in `pointsman serve`.
struct SupermarketSpec {
  std::uint32_t queues = 4'000;
  double load = 0.9;          // arrivals per queue and mean service time, (0, 1)
  std::uint32_t choices = 2;  // 1 or more
  double warm_up_s = 50;      // whose arrivals are not measured
  double length_s = 200;      // whose arrivals are
  // The queues start with lengths drawn from the limit's law. From empty queues it takes some
  // 1/(1 − load)² seconds with one choice until they look as they always will.
  bool from_limit = true;
};

struct SupermarketRun {
  // Of the measured customers, all of whom were served to the end: once arrivals have ended, no
  // later customer could delay them.
  double time_in_system_s = 0;
  std::uint64_t customers = 0;  // measured
  // Customers in the system over the measured time, per queue. Little's law: this is the time in
  // the system times the rate of arrivals per queue.
  double mean_in_system = 0;
};

// Limits for infinitely many queues.
[[nodiscard]] double supermarket_tail(double load, std::uint32_t choices, std::uint32_t at_least);
[[nodiscard]] double supermarket_time_s(double load, std::uint32_t choices);

// A pure function of its arguments. An error where the registry lacks the policy.
[[nodiscard]] Result<SupermarketRun> run_supermarket(const SupermarketSpec& spec,
                                                     const Registry& registry, std::uint64_t seed);

}  // namespace pointsman::sim
