#include "core/prefix_trust.h"

#include <cmath>

namespace pointsman {
namespace {

// However large an engine says its blocks are, a whole prompt is no rounding error.
constexpr std::uint32_t kMostBlockTokens = 2'048;

// Counters are compared once so many prompt tokens were sent since the last time, so that requests
// that lie across two reports weigh little; what they say is right to so much of the prompts.
constexpr double kWindowTokens = 16'384;
constexpr double kRateError = 0.05;
// Predictions of a smaller share of the prompts cannot be told from nothing by such a rate.
constexpr double kLeastRate = 0.1;
// A window speaks for so many answers at most.
constexpr std::uint32_t kMostAnswers = 8;

// How much of a prediction came true.
double ratio_of(std::uint32_t predicted, std::uint32_t actual, std::uint32_t block_tokens) {
  if (actual > 0 && std::uint64_t{actual} + block_tokens >= predicted) return 1;
  return static_cast<double>(actual) / predicted;
}

double to_blocks(std::uint64_t count) {
  return static_cast<double>(count);
}

}  // namespace

void PrefixTrust::answered(ReplicaIndex replica, const Answer& answer) {
  if (replica >= states_.size()) return;
  State& state = states_[replica];
  state.window.prompts += answer.prompt_tokens;
  state.window.matched += answer.matched_tokens;
  if (!answer.cached_tokens) {
    if (answer.matched_tokens >= kLeastTokens) ++state.window.silent;
    return;
  }
  ++state.window.told;

  CachedTokensError& error = state.error;
  const std::uint32_t predicted = answer.predicted_tokens;
  const std::uint32_t actual = *answer.cached_tokens;
  const std::uint32_t missed_by = predicted > actual ? predicted - actual : actual - predicted;
  ++error.answers;
  (predicted > actual ? error.over_tokens : error.under_tokens) += missed_by;
  const auto bound =
      std::ranges::lower_bound(CachedTokensError::kBounds, static_cast<double>(missed_by));
  ++error.buckets[static_cast<std::size_t>(bound - CachedTokensError::kBounds.begin())];
  error.last_predicted = predicted;
  error.last_actual = actual;

  const std::uint32_t block = std::min(answer.block_tokens, kMostBlockTokens);
  // What one block of the engine can round off to nothing, too.
  if (answer.matched_tokens < kLeastTokens || (actual == 0 && answer.matched_tokens <= block)) {
    return;
  }
  learn(state, answer.from, ratio_of(answer.matched_tokens, actual, block), 1, answer.held_blocks);
  settle(replica);
}

void PrefixTrust::counted(ReplicaIndex replica, double queries, double hits,
                          std::uint64_t held_blocks) {
  if (replica >= states_.size()) return;
  State& state = states_[replica];
  Window& window = state.window;
  if (!std::isfinite(queries) || !std::isfinite(hits)) return;
  const double new_queries = queries - state.last_queries;
  const double new_hits = hits - state.last_hits;
  state.last_queries = queries;
  state.last_hits = hits;
  // The comparison is false for NaN as well: the first report. Less than before: the engine's
  // start.
  if (!(new_queries >= 0 && new_hits >= 0)) {
    window = Window{};
    return;
  }
  window.queries += new_queries;
  window.hits += std::min(new_hits, new_queries);
  if (window.prompts < kWindowTokens || window.queries < window.prompts / 2) {
    // What others send must not stand for long for what is not sent here.
    if (window.queries > 8 * kWindowTokens) {
      window.queries /= 2;
      window.hits /= 2;
    }
    return;
  }
  const double predicted = window.matched / window.prompts;
  const double actual = window.hits / window.queries;
  if (window.silent > window.told && predicted >= kLeastRate) {
    const double ratio = actual + kRateError >= predicted ? 1 : actual / predicted;
    learn(state, Knowledge::kSent, ratio, std::min(window.silent, kMostAnswers), held_blocks);
    settle(replica);
  }
  window = Window{};
}

void PrefixTrust::set_caching(ReplicaIndex replica, bool caching) {
  if (replica >= states_.size() || states_[replica].caching == caching) return;
  states_[replica].caching = caching;
  settle(replica);
}

void PrefixTrust::set_capacity(ReplicaIndex replica, std::uint64_t blocks) {
  if (replica >= states_.size()) return;
  State& state = states_[replica];
  if (blocks == 0) state.limit_end = std::max(state.limit_end, to_blocks(state.reported));
  state.reported = blocks;
  if (blocks > 0 && state.limit >= to_blocks(blocks)) state.limit = 0;
}

std::uint64_t PrefixTrust::capacity(ReplicaIndex replica) const {
  if (replica >= states_.size()) return 0;
  const State& state = states_[replica];
  return state.limit > 0 ? static_cast<std::uint64_t>(state.limit) : state.reported;
}

double PrefixTrust::share(ReplicaIndex replica, Knowledge from) const {
  if (replica >= states_.size()) return 1;
  const State& state = states_[replica];
  if (!state.caching) return 0;
  const double rate = state.rate[static_cast<std::size_t>(from)];
  return std::clamp((rate - kWrong) / (kRight - kWrong), 0.0, 1.0);
}

void PrefixTrust::forget(ReplicaIndex replica) {
  if (replica >= states_.size()) return;
  State fresh;
  fresh.error = states_[replica].error;
  fresh.doubted = states_[replica].doubted;
  states_[replica] = fresh;
  settle(replica);
}

const CachedTokensError& PrefixTrust::error(ReplicaIndex replica) const {
  static constexpr CachedTokensError kNone{};
  return replica < states_.size() ? states_[replica].error : kNone;
}

void PrefixTrust::learn(State& state, Knowledge from, double ratio, std::uint32_t answers,
                        std::uint64_t held_blocks) {
  double& rate = state.rate[static_cast<std::size_t>(from)];
  // A stray miss says nothing of the cache's size; one while others are fresh does.
  const bool keeps_missing = rate < kRight;
  for (std::uint32_t i = 0; i < answers; ++i) rate += kGain * (ratio - rate);
  if (from == Knowledge::kSent && (ratio >= 0.5 || keeps_missing)) {
    correct_capacity(state, ratio, held_blocks);
  }
}

void PrefixTrust::correct_capacity(State& state, double ratio, std::uint64_t held_blocks) {
  const double reported = to_blocks(state.reported);
  if (ratio < 0.5) {
    const double held = to_blocks(held_blocks);
    double most = state.limit > 0 ? state.limit : reported;
    if (most == 0) {
      most = held;
      state.limit_end = held;
    }
    const double floor = reported > 0 ? reported * kFloor : kFloorBlocks;
    // What is not held cannot have been missed.
    state.limit = std::max({std::min(most, held) * kShrink, floor, 1.0});
  } else if (state.limit > 0) {
    state.limit = state.limit * kGrow + 1;
  } else {
    return;
  }
  if (state.limit >= (reported > 0 ? reported : state.limit_end)) state.limit = 0;
}

// The share of what was sent, and whether the replica counts as doubted.
void PrefixTrust::settle(ReplicaIndex replica) {
  State& state = states_[replica];
  shares_[replica] = static_cast<float>(share(replica, Knowledge::kSent));
  const bool doubted =
      share(replica, Knowledge::kSent) < 1 || share(replica, Knowledge::kEvents) < 1;
  if (doubted != state.doubted) {
    doubted ? ++doubted_ : --doubted_;
    state.doubted = doubted;
  }
}

}  // namespace pointsman
