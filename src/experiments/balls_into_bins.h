#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/registry.h"

namespace pointsman::sim {

// As many balls as bins are thrown one after the other, each into the emptiest of `choices` bins
// drawn by chance. With one choice the fullest bin holds ln n / ln ln n · (1 + o(1)) balls; with
// d >= 2 it holds ln ln n / ln d + O(1): the growth is another one (Azar, Broder, Karlin and Upfal,
// "Balanced Allocations", 1999).
//
// The balls are requests that never end, and the choices are those of a Router with the preset
// `least_connections`.
//
// Returns the number of bins with at least i balls at place i; place 0 counts all bins, and the
// last place is the fullest bin's.
[[nodiscard]] Result<std::vector<std::uint32_t>> throw_balls(std::uint32_t bins,
                                                             std::uint32_t choices,
                                                             const Registry& registry,
                                                             std::uint64_t seed);

// The share of bins with at least i balls, i at most `most`, as the number of bins grows: with
// s_0 = 1 the solution at t = 1 of ds_i/dt = s_{i−1}^d − s_i^d, s_i(0) = 0 (Mitzenmacher 2001). For
// one choice that is the Poisson law of mean one, for two s_1 = tanh 1. By Runge and Kutta's method
// of order four; exact to 1e-9.
[[nodiscard]] std::vector<double> bins_limit(std::uint32_t choices, std::uint32_t most);

// The expected load of the fullest bin if the bins' loads were independent draws from that limit:
// Σ over i >= 1 of 1 − (1 − s_i)^bins.
[[nodiscard]] double expected_fullest(std::uint32_t bins, std::uint32_t choices);

}  // namespace pointsman::sim
