#include "sim/workload.h"

#include <algorithm>
#include <cmath>

#include "sim/chance.h"

namespace pointsman::sim {
namespace {

constexpr double kMostTurns = 1'000;

std::uint32_t to_tokens(double tokens, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint32_t>(
      std::lround(std::clamp(tokens, static_cast<double>(low), static_cast<double>(high))));
}

std::uint32_t draw_turns(const WorkloadSpec& spec, Rng& rng) {
  if (spec.turns_law == TurnsLaw::kGeometric) {
    if (spec.turns_mean <= 1) return 1;
    // Inverse of the distribution function 1 - (1 - 1/mean)^k.
    const double k = std::ceil(std::log(1.0 - rng.unit()) / std::log(1 - 1 / spec.turns_mean));
    return static_cast<std::uint32_t>(std::clamp(k, 1.0, kMostTurns));
  }
  const double sigma = spec.turns_sigma;
  const double wanted =
      std::round(spec.turns_mean * std::exp(sigma * draw_normal(rng) - sigma * sigma / 2));
  return static_cast<std::uint32_t>(std::clamp(wanted, 1.0, kMostTurns));
}

}  // namespace

std::uint32_t LengthLaw::draw(Rng& rng) const {
  return to_tokens(median * std::exp(sigma * draw_normal(rng)), low, high);
}

double WorkloadSpec::expected_turns() const {
  if (turns_law == TurnsLaw::kGeometric) return std::max(1.0, turns_mean);
  if (turns_sigma <= 0) return std::clamp(std::round(turns_mean), 1.0, kMostTurns);
  // Σ over k of P(turns > k): the law exceeds k where it would round to more than k.
  double mean = 1;
  for (double k = 1; k < kMostTurns; ++k) {
    const double z =
        (std::log((k + 0.5) / turns_mean) + turns_sigma * turns_sigma / 2) / turns_sigma;
    const double above = 0.5 * std::erfc(z / std::sqrt(2.0));
    mean += above;
    if (above < 1e-15 && k > turns_mean) break;
  }
  return mean;
}

ConversationScript::ConversationScript(const WorkloadSpec& spec, std::uint64_t seed,
                                       std::uint64_t index)
    // The multiplier spreads neighbouring indices over the seeds of the generator.
    : rng_(seed ^ (index + 1) * 0x9e3779b97f4a7c15ULL), turns_left_(draw_turns(spec, rng_)) {}

Turn ConversationScript::next(const WorkloadSpec& spec) {
  Turn turn;
  turn.new_tokens = (is_first_ ? spec.first_prompt : spec.follow_up).draw(rng_);
  if (is_first_ && rng_.unit() < spec.document_share) {
    const double low = std::log(spec.document_low);
    const double high = std::log(spec.document_high);
    turn.new_tokens = to_tokens(std::exp(low + (high - low) * rng_.unit()), spec.document_low,
                                spec.document_high);
  }
  const bool is_long = rng_.unit() < spec.long_generation_share;
  turn.output_tokens = (is_long ? spec.long_generation : spec.output).draw(rng_);
  turn.max_tokens = is_long ? spec.long_max_tokens : spec.max_tokens;
  turn.think_s = draw_exponential(rng_, spec.think_s);
  is_first_ = false;
  --turns_left_;
  return turn;
}

Conversation make_conversation(const WorkloadSpec& spec, std::uint64_t seed, std::uint64_t index) {
  ConversationScript script(spec, seed, index);
  Conversation turns;
  turns.reserve(script.turns_left());
  while (script.turns_left() > 0) turns.push_back(script.next(spec));
  return turns;
}

SystemPrompts::SystemPrompts(const WorkloadSpec& spec, std::uint64_t seed)
    : seed_(mixed(seed ^ 0x5359'5354'454dULL)), share_(spec.system_share) {
  double sum = 0;
  for (std::uint32_t i = 0; i < spec.system_prompts; ++i) {
    sum += std::pow(i + 1.0, -spec.system_zipf);
    cumulative_.push_back(sum);
    Rng rng(mixed(seed_ + i));
    tokens_.push_back(spec.system_prompt.draw(rng));
  }
  for (double& value : cumulative_) value /= sum;
}

std::uint32_t SystemPrompts::of_conversation(std::uint64_t index) const {
  if (tokens_.empty()) return kNone;
  Rng rng(mixed(seed_ ^ mixed(index)));
  if (rng.unit() >= share_) return kNone;
  const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, rng.unit());
  return static_cast<std::uint32_t>(at - cumulative_.begin());
}

}  // namespace pointsman::sim
