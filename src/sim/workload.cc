#include "sim/workload.h"

#include <algorithm>
#include <cmath>

namespace pointsman::sim {
namespace {

// Standard normal, by Box and Muller 1958. 1 - unit() is above zero, as the logarithm needs.
double normal(Rng& rng) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - rng.unit()));
  return radius * std::cos(6.283185307179586 * rng.unit());
}

double exponential(Rng& rng, double mean) {
  return -mean * std::log(1.0 - rng.unit());
}

std::uint32_t to_tokens(double tokens, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint32_t>(
      std::lround(std::clamp(tokens, static_cast<double>(low), static_cast<double>(high))));
}

}  // namespace

std::uint32_t LengthLaw::draw(Rng& rng) const {
  return to_tokens(median * std::exp(sigma * normal(rng)), low, high);
}

Conversation make_conversation(const WorkloadSpec& spec, std::uint64_t seed, std::uint64_t index) {
  // The multiplier spreads neighbouring indices over the seeds of the generator.
  Rng rng(seed ^ (index + 1) * 0x9e3779b97f4a7c15ULL);
  const double sigma = spec.turns_sigma;
  const double wanted =
      std::round(spec.turns_mean * std::exp(sigma * normal(rng) - sigma * sigma / 2));
  Conversation turns(static_cast<std::size_t>(std::clamp(wanted, 1.0, 1'000.0)));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    turn.new_tokens = (i == 0 ? spec.first_prompt : spec.follow_up).draw(rng);
    if (i == 0 && rng.unit() < spec.document_share) {
      const double low = std::log(spec.document_low);
      const double high = std::log(spec.document_high);
      turn.new_tokens = to_tokens(std::exp(low + (high - low) * rng.unit()), spec.document_low,
                                  spec.document_high);
    }
    const bool is_long = rng.unit() < spec.long_generation_share;
    turn.output_tokens = (is_long ? spec.long_generation : spec.output).draw(rng);
    turn.max_tokens = is_long ? spec.long_max_tokens : spec.max_tokens;
    turn.think_s = exponential(rng, spec.think_s);
  }
  return turns;
}

}  // namespace pointsman::sim
