#include "experiments/balls_into_bins.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "experiments/uniform_fleet.h"

namespace pointsman::sim {
namespace {

constexpr int kSteps = 1'000;
// No fullest bin of thousands holds more.
constexpr std::uint32_t kMost = 30;

std::vector<double> slope(const std::vector<double>& shares, std::uint32_t choices) {
  std::vector<double> slopes(shares.size(), 0);
  for (std::size_t i = 1; i < shares.size(); ++i) {
    slopes[i] = std::pow(shares[i - 1], choices) - std::pow(shares[i], choices);
  }
  return slopes;
}

std::vector<double> ahead(const std::vector<double>& shares, const std::vector<double>& slopes,
                          double step) {
  std::vector<double> moved = shares;
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += step * slopes[i];
  return moved;
}

}  // namespace

Result<std::vector<std::uint32_t>> throw_balls(std::uint32_t bins, std::uint32_t choices,
                                               const Registry& registry, std::uint64_t seed) {
  Result<UniformFleet> fleet = make_uniform_fleet(bins, choices, registry, seed);
  if (!fleet) return fleet.error();
  Features features;
  features.stream = true;
  const TimePoint now{std::chrono::hours(1)};
  std::vector<Charge> balls;
  balls.reserve(bins);
  for (std::uint32_t i = 0; i < bins; ++i) {
    balls.push_back(fleet->router->decide(features, fleet->view, {}, now).charge);
  }
  std::vector<std::uint32_t> at_least(1, bins);
  for (ReplicaIndex bin = 0; bin < bins; ++bin) {
    const auto load = static_cast<std::size_t>(fleet->router->ledger()[bin].in_flight);
    if (load >= at_least.size()) at_least.resize(load + 1, 0);
    for (std::size_t i = 1; i <= load; ++i) ++at_least[i];
  }
  for (Charge& ball : balls) fleet->router->finished(std::move(ball), {}, now);
  return at_least;
}

std::vector<double> bins_limit(std::uint32_t choices, std::uint32_t most) {
  std::vector<double> shares(std::size_t{most} + 1, 0);
  shares[0] = 1;
  const double step = 1.0 / kSteps;
  for (int i = 0; i < kSteps; ++i) {
    const std::vector<double> k1 = slope(shares, choices);
    const std::vector<double> k2 = slope(ahead(shares, k1, step / 2), choices);
    const std::vector<double> k3 = slope(ahead(shares, k2, step / 2), choices);
    const std::vector<double> k4 = slope(ahead(shares, k3, step), choices);
    for (std::size_t j = 0; j < shares.size(); ++j) {
      shares[j] += step / 6 * (k1[j] + 2 * k2[j] + 2 * k3[j] + k4[j]);
    }
  }
  return shares;
}

double expected_fullest(std::uint32_t bins, std::uint32_t choices) {
  const std::vector<double> shares = bins_limit(choices, kMost);
  double sum = 0;
  for (std::size_t i = 1; i < shares.size(); ++i) {
    // 1 − (1 − s)^n without loss where s is small.
    sum -= std::expm1(bins * std::log1p(-std::min(shares[i], 1 - 1e-15)));
  }
  return sum;
}

}  // namespace pointsman::sim
