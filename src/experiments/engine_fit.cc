#include "experiments/engine_fit.h"

#include <algorithm>
#include <cmath>

#include "experiments/least_squares.h"

namespace pointsman::sim {
namespace {

constexpr std::size_t kEnough = 300;
constexpr int kTurns = 6;
constexpr std::size_t kFewest = 10;  // samples on each side of the bend
// Answers of fewer tokens say little of the time per token.
constexpr std::uint32_t kFewestTokens = 8;
// Spread, relative to the mean, that a column needs to be told from the constant one.
constexpr double kLeastSpread = 0.05;

PrefillWork work_of(const MeasuredRequest& request) {
  const double cached = request.cached_tokens;
  const double tokens = request.prompt_tokens - cached;
  return {tokens, tokens * cached + tokens * (tokens + 1) / 2};
}

double steps_of(const MeasuredRequest& request) {
  return static_cast<double>(request.output_tokens) - 1;
}

bool overlap(double a_begin, double a_end, double b_begin, double b_end) {
  return a_begin < b_end && b_begin < a_end;
}

// Who was at the same replica at the same time: requests sorted by their start.
class Neighbours {
 public:
  Neighbours(std::span<const MeasuredRequest> requests, std::vector<std::size_t> order)
      : requests_(requests), order_(std::move(order)) {
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return requests_[a].start < requests_[b].start;
    });
    for (const std::size_t i : order_) {
      longest_ = std::max(longest_, requests_[i].end - requests_[i].start);
    }
  }

  [[nodiscard]] const std::vector<std::size_t>& order() const { return order_; }

  // Calls each(other) for those that were there between the two moments, but not for `self`.
  template <typename Each>
  void for_each(std::size_t self, double begin, double end, Each&& each) const {
    auto at =
        std::lower_bound(order_.begin(), order_.end(), begin - longest_,
                         [&](std::size_t i, double time) { return requests_[i].start < time; });
    for (; at != order_.end() && requests_[*at].start < end; ++at) {
      if (*at != self && requests_[*at].end > begin) each(requests_[*at]);
    }
  }

 private:
  std::span<const MeasuredRequest> requests_;
  std::vector<std::size_t> order_;
  double longest_ = 0;
};

DecodeSample decode_sample(const Neighbours& neighbours, const MeasuredRequest& request,
                           std::size_t number) {
  DecodeSample sample;
  sample.request = number;
  sample.steps = steps_of(request);
  sample.itl = (request.end - request.first_token) / sample.steps;
  // Sums over the steps of this request.
  double sequences = sample.steps;
  double context = sample.steps * request.prompt_tokens + sample.steps * (sample.steps - 1) / 2;
  neighbours.for_each(number, request.first_token, request.end, [&](const MeasuredRequest& other) {
    if (other.first_token > request.first_token && other.first_token <= request.end) {
      sample.prefills.push_back(work_of(other));
    }
    const double length = other.end - other.first_token;
    if (!(length > 0)) return;
    const double begin = std::max(other.first_token, request.first_token);
    const double end = std::min(other.end, request.end);
    if (end <= begin) return;
    const double tokens = steps_of(other) * (end - begin) / length;
    const double middle = ((begin + end) / 2 - other.first_token) / length * steps_of(other);
    sequences += tokens;
    context += tokens * (other.prompt_tokens + middle);
  });
  sample.sequences = sequences / sample.steps;
  sample.context = context / sample.steps;
  return sample;
}

// What a step takes beyond its weights for a prefill in it.
double excess(const EngineConfig& config, const PrefillWork& work) {
  return std::max(0.0, config.token_s * work.tokens - config.weights_s) +
         config.token_s * config.attention_ratio * work.pairs;
}

double excess(const EngineConfig& config, const DecodeSample& sample) {
  double sum = 0;
  for (const PrefillWork& work : sample.prefills) sum += excess(config, work);
  return sum / sample.steps + std::max(0.0, config.token_s * sample.sequences - config.weights_s);
}

// What the others of a prefill's step cost, and the wait for the step before it.
double others_cost(const EngineConfig& config, const PrefillSample& sample) {
  if (sample.others <= 0) return 0;
  const double theirs = config.sequence_s * sample.others + config.context_s * sample.context;
  return theirs + (config.step_s + config.weights_s + theirs) / 2;
}

template <typename Samples, typename Column>
bool spreads(const Samples& samples, Column&& column) {
  double sum = 0;
  double squares = 0;
  for (const auto& sample : samples) {
    sum += column(sample);
    squares += column(sample) * column(sample);
  }
  const auto count = static_cast<double>(samples.size());
  const double mean = sum / count;
  const double variance = std::max(0.0, squares / count - mean * mean);
  return mean > 0 && std::sqrt(variance) > kLeastSpread * mean;
}

class Fitter {
 public:
  Fitter(std::span<const PrefillSample> prefills, std::span<const DecodeSample> decodes)
      : prefills_(prefills), decodes_(decodes) {
    fit_.context_told = spreads(decodes, [](const DecodeSample& s) { return s.context; });
    fit_.sequence_told = spreads(decodes, [](const DecodeSample& s) { return s.sequences; });
  }

  std::optional<EngineFit> solve() {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!solve_decodes() || !solve_prefills()) return std::nullopt;
      share_out();
    }
    return fit_;
  }

 private:
  // t0 + tw, tseq and tkv.
  bool solve_decodes() {
    EngineConfig& config = fit_.config;
    std::vector<Equation> equations;
    equations.reserve(decodes_.size());
    for (const DecodeSample& sample : decodes_) {
      Equation equation;
      equation.terms = {1, sample.sequences, sample.context, 0};
      equation.value = sample.itl - excess(config, sample);
      if (!fit_.sequence_told) equation.value -= config.sequence_s * sample.sequences;
      if (!fit_.context_told) equation.value -= config.context_s * sample.context;
      equation.scale = sample.itl;
      equations.push_back(equation);
    }
    const auto solution =
        solve_robustly(equations, {true, fit_.sequence_told, fit_.context_told, false},
                       {false, true, true, false});
    if (!solution || !(solution->coefficients[0] > 0)) return false;
    decode_base_ = solution->coefficients[0];
    if (fit_.sequence_told) config.sequence_s = solution->coefficients[1];
    if (fit_.context_told) config.context_s = solution->coefficients[2];
    return true;
  }

  [[nodiscard]] std::size_t above(double bend) const {
    return static_cast<std::size_t>(
        std::count_if(prefills_.begin(), prefills_.end(),
                      [bend](const PrefillSample& s) { return s.work.tokens > bend; }));
  }

  // overhead + t0, tc and tc·ra, with the bend of max(tw, tc · tokens) at so many tokens.
  [[nodiscard]] std::optional<Solution> solve_prefills(double bend) const {
    std::vector<Equation> equations;
    equations.reserve(prefills_.size());
    for (const PrefillSample& sample : prefills_) {
      Equation equation;
      equation.terms = {1, std::max(bend, sample.work.tokens), sample.work.pairs, 0};
      equation.value = sample.ttft - fit_.config.sequence_s - others_cost(fit_.config, sample);
      equation.scale = sample.ttft;
      equations.push_back(equation);
    }
    return solve_robustly(equations, {true, true, true, false}, {false, true, true, false});
  }

  bool solve_prefills() {
    const auto [low, high] = std::minmax_element(
        prefills_.begin(), prefills_.end(), [](const PrefillSample& a, const PrefillSample& b) {
          return a.work.tokens < b.work.tokens;
        });
    const double least = std::max(1.0, low->work.tokens);
    const double most = std::max(least * 1.01, high->work.tokens);
    best_.reset();
    try_bend(0);
    constexpr int kGrid = 24;
    double factor = std::pow(most / least, 1.0 / kGrid);
    for (int i = 0; i <= kGrid; ++i) try_bend(least * std::pow(factor, i));
    constexpr int kFine = 4;
    for (int round = 0; round < 3 && bend_ > 0; ++round) {
      const double centre = bend_;
      factor = std::pow(factor, 1.0 / kFine);
      for (int i = -kFine; i <= kFine; ++i) try_bend(centre * std::pow(factor, i));
    }
    return best_.has_value();
  }

  void try_bend(double bend) {
    if (bend > 0 && above(bend) < kFewest) return;
    const std::optional<Solution> solution = solve_prefills(bend);
    if (!solution || (best_ && solution->loss >= best_->loss)) return;
    best_ = solution;
    bend_ = bend;
  }

  // The sums that were told become constants.
  void share_out() {
    EngineConfig& config = fit_.config;
    const auto& [base, token, pair, none] = best_->coefficients;
    fit_.token_told = token > 0 && above(bend_) >= kFewest;
    if (token > 0) config.token_s = token;
    fit_.attention_told = pair > 0;
    config.attention_ratio = token > 0 ? pair / token : 0;
    const std::size_t below = prefills_.size() - above(bend_);
    fit_.step_told = fit_.token_told && bend_ > 0 && below >= kFewest;
    // Without short prompts only the sum of t0 and tw is known.
    config.weights_s = fit_.step_told
                           ? std::min(bend_ * token, decode_base_)
                           : decode_base_ - std::min(EngineConfig{}.step_s, decode_base_ / 2);
    config.step_s = decode_base_ - config.weights_s;
    fit_.overhead_s = std::max(0.0, base - config.step_s);
  }

  std::span<const PrefillSample> prefills_;
  std::span<const DecodeSample> decodes_;
  EngineFit fit_;
  double decode_base_ = 0;
  double bend_ = 0;
  std::optional<Solution> best_;
};

}  // namespace

EngineSamples engine_samples(std::span<const MeasuredRequest> requests, std::uint32_t max_batched) {
  EngineSamples samples;
  std::vector<std::vector<std::size_t>> by_replica;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].replica >= by_replica.size()) by_replica.resize(requests[i].replica + 1);
    by_replica[requests[i].replica].push_back(i);
  }
  std::vector<PrefillSample> alone;
  for (std::vector<std::size_t>& numbers : by_replica) {
    const Neighbours neighbours(requests, std::move(numbers));
    for (const std::size_t number : neighbours.order()) {
      const MeasuredRequest& request = requests[number];
      if (request.output_tokens >= kFewestTokens && request.end > request.first_token) {
        samples.decodes.push_back(decode_sample(neighbours, request, number));
      }
      PrefillSample prefill{number, request.first_token - request.start, work_of(request), 0, 0};
      bool crowded = false;
      neighbours.for_each(
          number, request.start, request.first_token, [&](const MeasuredRequest& other) {
            if (overlap(other.start, other.first_token, request.start, request.first_token)) {
              crowded = true;
            } else if (other.first_token <= request.start && other.end > request.start) {
              prefill.others += 1;
              const double share =
                  (request.start - other.first_token) / (other.end - other.first_token);
              prefill.context += other.prompt_tokens + share * steps_of(other);
            }
          });
      if (crowded) {
        ++samples.crowded;
      } else if (prefill.work.tokens > max_batched - prefill.others) {
        ++samples.too_long;
      } else {
        alone.push_back(prefill);
      }
    }
  }
  for (const double most : {0.0, 1.0, 2.0, 4.0, 8.0, 16.0}) {
    samples.most_others = most;
    const auto few = [most](const PrefillSample& sample) { return sample.others <= most; };
    if (std::count_if(alone.begin(), alone.end(), few) >= static_cast<std::ptrdiff_t>(kEnough)) {
      break;
    }
  }
  for (const PrefillSample& sample : alone) {
    if (sample.others <= samples.most_others) samples.prefills.push_back(sample);
  }
  return samples;
}

double EngineFit::predict_ttft(const PrefillSample& sample) const {
  return overhead_s + config.step_s + config.sequence_s +
         std::max(config.weights_s, config.token_s * sample.work.tokens) +
         config.token_s * config.attention_ratio * sample.work.pairs + others_cost(config, sample);
}

double EngineFit::predict_itl(const DecodeSample& sample) const {
  return config.step_s + config.weights_s + config.sequence_s * sample.sequences +
         config.context_s * sample.context + excess(config, sample);
}

std::optional<EngineFit> fit_engine(std::span<const PrefillSample> prefills,
                                    std::span<const DecodeSample> decodes) {
  if (prefills.size() < 2 * kFewest || decodes.size() < kFewest) return std::nullopt;
  return Fitter(prefills, decodes).solve();
}

}  // namespace pointsman::sim
