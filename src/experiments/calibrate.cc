#include "experiments/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "experiments/engine_fit.h"
#include "experiments/log_replay.h"
#include "experiments/measured_requests.h"
#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/chance.h"

namespace pointsman::sim {
namespace {

constexpr std::size_t kFewestRequests = 50;
constexpr std::size_t kMostRequests = 50'000;  // more tell nothing new, and take long
constexpr std::size_t kMostSamples = 2'000;    // of each kind in a fit
constexpr int kResamples = 100;
constexpr int kQuickResamples = 20;
constexpr std::uint64_t kSplitSeed = 0x5eed;
constexpr std::uint32_t kFewestTokens = 8;  // of an answer whose time per token says something
// An interval of more than this share of the value on either side tells little.
constexpr double kWide = 0.5;

struct Constant {
  std::string_view key;
  std::string_view unit;  // on the screen, and how many there are in one of the file's
  double scale;
  double (*value)(const EngineFit&);
  bool (*told)(const EngineFit&);
  std::string_view needs;  // what a log must have for it
};
constexpr std::string_view kShortAndLong =
    "uncached prompts both shorter and longer than one weight read lasts";
constexpr std::array kConstants = {
    Constant{"engine.step_s", "ms", 1e3, [](const EngineFit& fit) { return fit.config.step_s; },
             [](const EngineFit& fit) { return fit.step_told; }, kShortAndLong},
    Constant{"engine.weights_s", "ms", 1e3,
             [](const EngineFit& fit) { return fit.config.weights_s; },
             [](const EngineFit& fit) { return fit.step_told; }, kShortAndLong},
    Constant{"engine.token_s", "us", 1e6, [](const EngineFit& fit) { return fit.config.token_s; },
             [](const EngineFit& fit) { return fit.token_told; },
             "uncached prompts of several lengths"},
    Constant{"engine.context_s", "ns", 1e9,
             [](const EngineFit& fit) { return fit.config.context_s; },
             [](const EngineFit& fit) { return fit.context_told; },
             "answers to short and to long prompts"},
    Constant{"engine.sequence_s", "us", 1e6,
             [](const EngineFit& fit) { return fit.config.sequence_s; },
             [](const EngineFit& fit) { return fit.sequence_told; },
             "times with few and with many requests at once"},
    Constant{"engine.attention_ratio", "1e-6", 1e6,
             [](const EngineFit& fit) { return fit.config.attention_ratio; },
             [](const EngineFit& fit) { return fit.attention_told; },
             "long prompts, with and without a cached beginning"},
    Constant{"measure.overhead_s", "ms", 1e3, [](const EngineFit& fit) { return fit.overhead_s; },
             [](const EngineFit& fit) { return fit.step_told; }, kShortAndLong},
};

// One request in five takes no part in the fit.
bool is_held_out(std::size_t request) {
  return mixed(request ^ kSplitSeed) % 5 == 0;
}

template <typename Sample>
struct Split {
  std::vector<Sample> fitted;
  std::vector<Sample> held_out;
};

// At most kMostSamples to fit, evenly from all of the log.
template <typename Sample>
Split<Sample> split(const std::vector<Sample>& samples) {
  Split<Sample> parts;
  for (const Sample& sample : samples) {
    (is_held_out(sample.request) ? parts.held_out : parts.fitted).push_back(sample);
  }
  if (parts.fitted.size() > kMostSamples) {
    std::vector<Sample> some;
    some.reserve(kMostSamples);
    for (std::size_t i = 0; i < kMostSamples; ++i) {
      some.push_back(std::move(parts.fitted[i * parts.fitted.size() / kMostSamples]));
    }
    parts.fitted = std::move(some);
  }
  return parts;
}

template <typename Sample>
std::vector<Sample> resample(const std::vector<Sample>& samples, Rng& rng) {
  std::vector<Sample> drawn;
  drawn.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    drawn.push_back(samples[rng.below(static_cast<std::uint32_t>(samples.size()))]);
  }
  return drawn;
}

// The middle 95 % of the values.
std::pair<double, double> middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

// Of an error's share of what was measured, the mean; and that of guessing the median each time.
struct Errors {
  Estimate fit;
  Estimate guess;
};
template <typename Sample>
Errors errors(const Split<Sample>& parts, double (*measured)(const Sample&),
              const std::function<double(const Sample&)>& predict) {
  std::vector<double> all;
  for (const Sample& sample : parts.fitted) all.push_back(measured(sample));
  const double guess = median(all);
  std::vector<double> ours;
  std::vector<double> theirs;
  for (const Sample& sample : parts.held_out) {
    const double value = measured(sample);
    ours.push_back(std::abs(predict(sample) - value) / value);
    theirs.push_back(std::abs(guess - value) / value);
  }
  constexpr double kAny = std::numeric_limits<double>::infinity();
  return {within(arithmetic_mean(ours), 0, kAny), within(arithmetic_mean(theirs), 0, kAny)};
}

// A time of a request, as it was measured and as the log run again has it.
struct ReplayedTime {
  std::size_t request = 0;
  double measured = 0;
  double replayed = 0;
};

Errors replay_errors(const std::vector<ReplayedTime>& times) {
  Split<ReplayedTime> parts;
  for (const ReplayedTime& time : times) {
    (is_held_out(time.request) ? parts.held_out : parts.fitted).push_back(time);
  }
  return errors<ReplayedTime>(
      parts, [](const ReplayedTime& t) { return t.measured; },
      [](const ReplayedTime& t) { return t.replayed; });
}

std::size_t count_held_out(const std::vector<ReplayedTime>& times) {
  return static_cast<std::size_t>(std::count_if(
      times.begin(), times.end(), [](const ReplayedTime& t) { return is_held_out(t.request); }));
}

std::string cause(std::uint64_t count, std::string_view what) {
  return count == 0 ? std::string() : "; " + std::to_string(count) + " " + std::string(what);
}

// Why lines of the log took no part.
std::string left_out(const MeasuredRequests& log) {
  return cause(log.failed, "failed") + cause(log.tried_again, "tried more than once") +
         cause(log.not_streamed, "not streamed or without a ttft_ms above 0") +
         cause(log.uncounted,
               "without a number of tokens (clients ask a stream for that with "
               "stream_options: {include_usage: true})");
}

Error too_few(const std::string& path, const MeasuredRequests& log, const std::string& what) {
  return {ErrorKind::kClient, path + ": too few requests: " + what + left_out(log)};
}

// Four significant digits, as a scenario file takes them.
std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// In the constant's unit, with the interval.
std::string shown(const Constant& constant, const Estimate& value) {
  char text[128];
  std::snprintf(text, sizeof text, "%.4g [%.4g, %.4g] %s", value.mean * constant.scale,
                value.low * constant.scale, value.high * constant.scale,
                std::string(constant.unit).c_str());
  return text;
}

std::string scenario_text(const EngineFit& fit, std::size_t replicas,
                          const CalibrateOptions& options, const std::vector<std::string>& doubts) {
  std::string text = "replicas:\n  - count: " + std::to_string(replicas) + "\n    engine:\n";
  text += "      # blocks and max_num_seqs: as the engines say when they start\n";
  text += "      max_num_batched_tokens: " + std::to_string(options.max_num_batched_tokens) + "\n";
  for (std::size_t i = 0; i < kConstants.size(); ++i) {
    const std::string_view key = kConstants[i].key;
    const std::string_view name = key.substr(key.find('.') + 1);
    text += key.starts_with("measure.") ? "measure:\n  " : "      ";
    text += std::string(name) + ": " + number_text(kConstants[i].value(fit));
    if (!doubts[i].empty()) text += "  # " + doubts[i];
    text += '\n';
  }
  return text;
}

void keep_replica(MeasuredRequests& log, const std::string& url) {
  const auto at = std::find(log.replicas.begin(), log.replicas.end(), url);
  const auto number = static_cast<std::uint32_t>(at - log.replicas.begin());
  std::erase_if(log.requests,
                [number](const MeasuredRequest& request) { return request.replica != number; });
}

}  // namespace

Result<Calibration> run_calibrate(const std::string& path, const CalibrateOptions& options) {
  Result<MeasuredRequests> read = read_request_log(path);
  if (!read) return read.error();
  MeasuredRequests& log = *read;
  if (!options.replica.empty()) {
    if (std::find(log.replicas.begin(), log.replicas.end(), options.replica) ==
        log.replicas.end()) {
      std::string known;
      for (const std::string& url : log.replicas) known += (known.empty() ? "" : ", ") + url;
      return Error{ErrorKind::kClient, path + ": no usable request of replica " + options.replica +
                                           " (there are: " + (known.empty() ? "none" : known) +
                                           ")"};
    }
    keep_replica(log, options.replica);
  }
  const std::size_t usable = log.requests.size();
  if (usable < kFewestRequests) {
    return too_few(path, log,
                   std::to_string(usable) + " of " + std::to_string(log.lines) + " can be used, " +
                       std::to_string(kFewestRequests) + " are needed");
  }
  if (log.requests.size() > kMostRequests) log.requests.resize(kMostRequests);

  const EngineSamples samples = engine_samples(log.requests, options.max_num_batched_tokens);
  const Split<PrefillSample> prefills = split(samples.prefills);
  const Split<DecodeSample> decodes = split(samples.decodes);
  const std::optional<EngineFit> fit = fit_engine(prefills.fitted, decodes.fitted);
  if (!fit || prefills.held_out.empty() || decodes.held_out.empty()) {
    return too_few(path, log,
                   std::to_string(samples.prefills.size()) +
                       " prefills ran beside no other one and few decodes, and " +
                       std::to_string(samples.decodes.size()) +
                       " answers had 8 tokens or more; measure at a lower load, or longer");
  }

  const auto count = static_cast<std::size_t>(options.quick ? kQuickResamples : kResamples);
  const std::vector<std::optional<EngineFit>> fits = run_parallel(
      count, options.jobs,
      [&](std::size_t i) {
        Rng rng(mixed(kSplitSeed + i));
        const std::vector<PrefillSample> some = resample(prefills.fitted, rng);
        return fit_engine(some, resample(decodes.fitted, rng));
      },
      [&](std::size_t done) {
        if (options.progress) options.progress(done, count);
      });

  Calibration calibration;
  Report& report = calibration.report;
  report.experiment = "calibrate";
  report.title = path + ": " + std::to_string(usable) + " of " + counted(log.lines, "request") +
                 ", " + counted(log.replicas.size(), "replica");
  report.scenario.set("log", path)
      .set("replica", options.replica)
      .set("max_num_batched_tokens", options.max_num_batched_tokens)
      .set("requests", usable)
      .set("prefills_fitted", prefills.fitted.size())
      .set("decodes_fitted", decodes.fitted.size())
      .set("resamples", count);
  std::vector<std::string> doubts;
  for (const Constant& constant : kConstants) {
    std::vector<double> values;
    for (const std::optional<EngineFit>& one : fits) {
      if (one) values.push_back(constant.value(*one));
    }
    const double value = constant.value(*fit);
    const auto [low, high] = values.empty() ? std::pair(value, value) : middle(values);
    const bool is_there = constant.told(*fit);
    const bool narrow = low >= value * (1 - kWide) && high <= value * (1 + kWide) && value > 0;
    Record row;
    row.set("model", "constant").set("key", constant.key);
    const Estimate estimate{value, std::min(low, value), std::max(high, value)};
    row.set("value", estimate).set("shown", shown(constant, estimate));
    const std::string_view verdict =
        !is_there ? "not told by this log: shipped value, or a share of a sum"
        : narrow  ? "told"
                  : "hardly told by this log: wide interval";
    row.set("told", is_there && narrow).set("verdict", verdict).set("needs", constant.needs);
    report.rows.push_back(std::move(row));
    doubts.emplace_back(is_there && narrow ? std::string_view() : verdict);
    if (!(is_there && narrow)) {
      report.notes.push_back(std::string(constant.key) + " could not be told well: it needs " +
                             std::string(constant.needs) + ".");
    }
  }
  report.tables.push_back({.title = "",
                           .columns = {{"key", "key"}, {"shown", "value"}, {"verdict", "verdict"}},
                           .rows = kConstants.size()});

  const auto add_errors = [&report](std::string_view what, const Errors& both, std::size_t held) {
    Record row;
    row.set("model", "error").set("what", what).set("held_out", held);
    row.set("mape", both.fit).set("mape_of_median", both.guess);
    report.rows.push_back(std::move(row));
  };
  add_errors("TTFT",
             errors<PrefillSample>(
                 prefills, [](const PrefillSample& s) { return s.ttft; },
                 [&](const PrefillSample& s) { return fit->predict_ttft(s); }),
             prefills.held_out.size());
  add_errors("ITL",
             errors<DecodeSample>(
                 decodes, [](const DecodeSample& s) { return s.itl; },
                 [&](const DecodeSample& s) { return fit->predict_itl(s); }),
             decodes.held_out.size());

  // The same of all requests, those in a crowd included: the whole log is run again.
  EngineConfig engine = fit->config;
  engine.max_num_batched_tokens = options.max_num_batched_tokens;
  const std::vector<ReplayedRequest> replayed = replay_log(log.requests, engine, fit->overhead_s);
  std::vector<ReplayedTime> first_tokens;
  std::vector<ReplayedTime> gaps;
  for (std::size_t i = 0; i < replayed.size(); ++i) {
    const MeasuredRequest& request = log.requests[i];
    first_tokens.push_back(
        {i, request.first_token - request.start, replayed[i].first_token - request.start});
    if (request.output_tokens < kFewestTokens || request.end <= request.first_token) continue;
    const double steps = request.output_tokens - 1;
    gaps.push_back({i, (request.end - request.first_token) / steps,
                    (replayed[i].end - replayed[i].first_token) / steps});
  }
  add_errors("TTFT, log run again", replay_errors(first_tokens), count_held_out(first_tokens));
  add_errors("ITL, log run again", replay_errors(gaps), count_held_out(gaps));
  report.tables.push_back({.title = "Error on requests that took no part in the fit",
                           .columns = {{"what", "of"},
                                       {"held_out", "requests"},
                                       {"mape", "MAPE %", 2, 100},
                                       {"mape_of_median", "of guessing the median %", 1, 100}}});
  char text[160];
  std::snprintf(
      text, sizeof text,
      "Prefills fitted: those beside at most %.0f decoding requests; %llu met another prefill, "
      "%llu were too long for one step.",
      samples.most_others, static_cast<unsigned long long>(samples.crowded),
      static_cast<unsigned long long>(samples.too_long));
  report.notes.emplace_back(text);
  const std::string gone = left_out(log);
  if (!gone.empty()) report.notes.push_back("Left out: " + gone.substr(2) + ".");
  if (log.without_cached == usable) {
    report.notes.emplace_back(
        "No line has cached_tokens: all prompts are taken to be computed whole. vLLM tells it with "
        "--enable-prompt-tokens-details.");
  }
  calibration.scenario =
      scenario_text(*fit, options.replica.empty() ? log.replicas.size() : 1, options, doubts);
  return calibration;
}

}  // namespace pointsman::sim
