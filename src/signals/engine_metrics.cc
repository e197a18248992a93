#include "signals/engine_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/ascii.h"
#include "signals/prometheus_text.h"

namespace pointsman {
namespace {

constexpr std::array<std::string_view, kEngineSignals> kSignalNames = {
    "running",        "waiting",       "queued_tokens",      "kv_usage",
    "prefix_queries", "prefix_misses", "prefix_hits",        "prefix_hit_rate",
    "block_tokens",   "blocks",        "kv_capacity_tokens", "awake",
    "prefix_caching"};

constexpr std::string_view kEngineNames[] = {"",       "vllm",     "sglang", "trtllm",
                                             "triton", "lmdeploy", "tgi",    "llama.cpp"};
enum EngineIndex : std::uint8_t { kOwn, kVllm, kSglang, kTrtllm, kTriton, kLmdeploy, kTgi, kLlama };
constexpr std::size_t kEngines = std::size(kEngineNames);

struct Known {
  EngineIndex engine;
  EngineSignal signal;
  std::string_view selector;
  std::string_view value_label = {};
};

using enum EngineSignal;

// Newest name first within an engine and signal.
constexpr Known kKnown[] = {
    {kVllm, kRunning, "vllm:num_requests_running"},
    {kVllm, kWaiting, "vllm:num_requests_waiting"},
    {kVllm, kKvUsage, "vllm:kv_cache_usage_perc"},   // since 0.9
    {kVllm, kKvUsage, "vllm:gpu_cache_usage_perc"},  // until 0.12
    {kVllm, kPrefixQueries, "vllm:prefix_cache_queries_total"},
    {kVllm, kPrefixQueries, "vllm:prefix_cache_queries"},
    {kVllm, kPrefixQueries, "vllm:gpu_prefix_cache_queries_total"},  // 0.8, 0.9
    {kVllm, kPrefixQueries, "vllm:gpu_prefix_cache_queries"},
    {kVllm, kPrefixHits, "vllm:prefix_cache_hits_total"},
    {kVllm, kPrefixHits, "vllm:prefix_cache_hits"},
    {kVllm, kPrefixHits, "vllm:gpu_prefix_cache_hits_total"},
    {kVllm, kPrefixHits, "vllm:gpu_prefix_cache_hits"},
    {kVllm, kPrefixHitRate, "vllm:prefix_cache_hit_rate"},
    {kVllm, kPrefixHitRate, "vllm:gpu_prefix_cache_hit_rate"},  // the first engine generation
    {kVllm, kBlockTokens, "vllm:cache_config_info", "block_size"},
    {kVllm, kBlocks, "vllm:cache_config_info", "num_gpu_blocks"},
    {kVllm, kCapacityTokens, "vllm:cache_config_info", "kv_cache_size_tokens"},
    {kVllm, kPrefixCaching, "vllm:cache_config_info", "enable_prefix_caching"},
    {kVllm, kAwake, "vllm:engine_sleep_state{sleep_state=\"awake\"}"},

    {kSglang, kRunning, "sglang:num_running_reqs"},
    {kSglang, kWaiting, "sglang:num_queue_reqs"},
    {kSglang, kKvUsage, "sglang:token_usage"},
    {kSglang, kPrefixQueries, "sglang:prompt_tokens_total"},
    {kSglang, kPrefixHits, "sglang:cached_tokens_total"},
    {kSglang, kPrefixHitRate, "sglang:cache_hit_rate"},
    {kSglang, kBlockTokens, "sglang:page_size"},  // since 0.5.11
    {kSglang, kBlockTokens, "sglang:cache_config_info", "page_size"},
    {kSglang, kBlocks, "sglang:num_pages"},
    {kSglang, kBlocks, "sglang:cache_config_info", "num_pages"},
    {kSglang, kCapacityTokens, "sglang:max_total_num_tokens"},

    {kTrtllm, kRunning, "trtllm_num_requests_running"},
    {kTrtllm, kWaiting, "trtllm_num_requests_waiting"},
    {kTrtllm, kKvUsage, "trtllm_kv_cache_utilization"},
    {kTrtllm, kPrefixHitRate, "trtllm_kv_cache_hit_rate"},
    {kTrtllm, kBlockTokens, "trtllm_kv_cache_tokens_per_block"},
    {kTrtllm, kBlocks, "trtllm_kv_cache_max_blocks"},

    {kTriton, kRunning, "nv_trt_llm_request_metrics{request_type=scheduled}"},
    {kTriton, kWaiting, "nv_trt_llm_request_metrics{request_type=waiting}"},
    {kTriton, kKvUsage, "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"},
    {kTriton, kBlockTokens, "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}"},
    {kTriton, kBlocks, "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}"},

    {kLmdeploy, kRunning, "lmdeploy:num_requests_running"},
    {kLmdeploy, kWaiting, "lmdeploy:num_requests_waiting"},
    {kLmdeploy, kKvUsage, "lmdeploy:gpu_cache_usage_perc"},

    {kTgi, kRunning, "tgi_batch_current_size"},
    {kTgi, kWaiting, "tgi_queue_size"},

    {kLlama, kRunning, "llamacpp:requests_processing"},
    {kLlama, kWaiting, "llamacpp:requests_deferred"},
    {kLlama, kKvUsage, "llamacpp:kv_cache_usage_ratio"},  // removed since
    {kLlama, kPrefixMisses, "llamacpp:prompt_tokens_total"},
    {kLlama, kPrefixHits, "llamacpp:prompt_tokens_cached_total"},
};

// What the samples of one candidate add up to.
struct Tally {
  std::uint32_t count = 0;
  double sum = 0;
  double least = 0;
  double largest = 0;
  std::optional<double> implausible;

  void add(double value) {
    least = count == 0 ? value : std::min(least, value);
    largest = count == 0 ? value : std::max(largest, value);
    sum += value;
    ++count;
  }
};

double combine(EngineSignal signal, const Tally& tally) {
  switch (signal) {
    case kRunning:
    case kWaiting:
    case kQueuedTokens:
    case kPrefixQueries:
    case kPrefixMisses:
    case kPrefixHits:
    case kBlocks:
    case kCapacityTokens:
      return tally.sum;
    case kKvUsage:
    case kBlockTokens:
      return tally.largest;
    case kPrefixHitRate:
      return tally.sum / tally.count;
    case kAwake:
    case kPrefixCaching:
      return tally.least;
  }
  return tally.sum;
}

// A share may pass 1 by rounding; well above it, it is no share (a percentage, perhaps).
constexpr double kShareSlack = 1.01;
// Above this a number of requests or tokens is a broken page rather than a load.
constexpr double kMostPlausible = 1e15;

bool is_reading(EngineSignal signal, double value) {
  if (!std::isfinite(value) || value < 0 || value > kMostPlausible) return false;
  return (signal != kKvUsage && signal != kPrefixHitRate) || value <= kShareSlack;
}

// The number that a label's text gives; 1 and 0 for Python's True and False. "None" and the like:
// nothing.
std::optional<double> number(std::string_view text) {
  if (text == "True") return 1;
  if (text == "False") return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// Ranks that repeat what the first one says.
bool is_repetition(const PrometheusSample& sample) {
  for (const std::string_view rank : {"tp_rank", "pp_rank"}) {
    const std::optional<std::string> value = sample.label(rank);
    if (value && *value != "0" && !value->empty()) return true;
  }
  return false;
}

constexpr std::uint32_t bit(EngineSignal signal) {
  return 1U << static_cast<unsigned>(signal);
}

float to_float(std::optional<double> value) {
  return value ? static_cast<float>(*value) : EngineReading::kUnknown;
}

}  // namespace

std::string_view name_of(EngineSignal signal) {
  return kSignalNames[static_cast<std::size_t>(signal)];
}

std::optional<EngineSignal> engine_signal(std::string_view name) {
  for (std::size_t i = 0; i < kEngineSignals; ++i) {
    if (kSignalNames[i] == name) return static_cast<EngineSignal>(i);
  }
  return std::nullopt;
}

bool EngineReading::any_load() const {
  return !std::isnan(running) || !std::isnan(waiting) || !std::isnan(kv_usage) ||
         !std::isnan(queued_tokens);
}

Result<EngineMetrics::Candidate> EngineMetrics::parse_selector(std::string_view selector) {
  const auto wrong = [&](std::string_view what) {
    return Error{ErrorKind::kClient, "metric selector '" + std::string(selector) + "': " +
                                         std::string(what) + " (expected name{label=\"value\"})"};
  };
  Candidate candidate;
  candidate.name = prometheus_name(selector);
  if (candidate.name.empty()) return wrong("no metric name");
  std::string_view rest = trim(selector);
  rest = trim(rest.substr(candidate.name.size()));
  if (rest.empty()) return candidate;
  if (rest.front() != '{' || rest.back() != '}') return wrong("unexpected text after the name");
  rest = trim(rest.substr(1, rest.size() - 2));
  while (!rest.empty()) {
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return wrong("a label without a value");
    Match match;
    match.label = trim(rest.substr(0, equals));
    if (prometheus_name(match.label) != match.label || match.label.empty()) {
      return wrong("not a label name: '" + match.label + "'");
    }
    rest = trim(rest.substr(equals + 1));
    if (rest.starts_with('"')) {
      const std::size_t close = rest.find('"', 1);
      if (close == std::string_view::npos) return wrong("a quote is not closed");
      match.value = rest.substr(1, close - 1);
      rest = trim(rest.substr(close + 1));
      if (!rest.empty() && rest.front() != ',') return wrong("unexpected text after a value");
    } else {
      match.value = trim(rest.substr(0, rest.find(',')));
      rest = rest.substr(std::min(rest.find(','), rest.size()));
    }
    candidate.matches.push_back(std::move(match));
    if (!rest.empty()) rest = trim(rest.substr(1));
  }
  return candidate;
}

Result<void> EngineMetrics::check(std::string_view selector) {
  const Result<Candidate> parsed = parse_selector(selector);
  if (!parsed) return parsed.error();
  return {};
}

EngineMetrics::EngineMetrics(const std::vector<OwnMetric>& own) {
  for (const OwnMetric& metric : own) {
    Result<Candidate> candidate = parse_selector(metric.selector);
    if (!candidate) continue;
    candidate->signal = metric.signal;
    add(*std::move(candidate));
  }
  for (const Known& known : kKnown) {
    Candidate candidate = *parse_selector(known.selector);
    candidate.signal = known.signal;
    candidate.engine = known.engine;
    candidate.value_label = known.value_label;
    add(std::move(candidate));
  }
}

void EngineMetrics::add(Candidate candidate) {
  const std::size_t length = candidate.name.size();
  if (by_length_.size() <= length) by_length_.resize(length + 1);
  by_length_[length].push_back(static_cast<std::uint16_t>(candidates_.size()));
  candidates_.push_back(std::move(candidate));
}

EngineReading EngineMetrics::read(std::string_view page) const {
  std::vector<Tally> tallies(candidates_.size());
  const auto wanted = [this](std::string_view name) {
    if (name.size() >= by_length_.size()) return false;
    return std::ranges::any_of(by_length_[name.size()],
                               [&](std::uint16_t i) { return candidates_[i].name == name; });
  };
  scan_prometheus(page, wanted, [&](const PrometheusSample& sample) {
    if (is_repetition(sample)) return;
    for (const std::uint16_t i : by_length_[sample.name.size()]) {
      const Candidate& candidate = candidates_[i];
      if (candidate.name != sample.name) continue;
      const bool matches = std::ranges::all_of(candidate.matches, [&](const Match& match) {
        return sample.label_is(match.label, match.value);
      });
      if (!matches) continue;
      std::optional<double> value = sample.value;
      if (!candidate.value_label.empty()) {
        const std::optional<std::string> text = sample.label(candidate.value_label);
        value = text ? number(*text) : std::nullopt;
      }
      if (!value || std::isnan(*value)) continue;
      if (is_reading(candidate.signal, *value)) {
        tallies[i].add(*value);
      } else {
        tallies[i].implausible = value;
      }
    }
  });

  // Which engine: the one with the most signals on the page.
  std::array<std::uint32_t, kEngines> seen{};  // a bit per signal
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (tallies[i].count > 0) seen[candidate.engine] |= bit(candidate.signal);
  }
  std::size_t engine = kOwn;
  int most = 0;
  for (std::size_t e = kVllm; e < kEngines; ++e) {
    const int count = __builtin_popcount(seen[e]);
    if (count > most) {
      most = count;
      engine = e;
    }
  }

  std::array<std::optional<double>, kEngineSignals> values;
  EngineReading reading;
  reading.engine = kEngineNames[engine];
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const auto signal = static_cast<std::size_t>(candidate.signal);
    if (tallies[i].count == 0 || values[signal]) continue;
    if (candidate.engine != kOwn && candidate.engine != engine) continue;
    values[signal] = combine(candidate.signal, tallies[i]);
    reading.source[signal] = candidate.name;
  }
  for (std::size_t i = 0; i < candidates_.size() && reading.implausible.empty(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool of_engine = engine == kOwn || candidate.engine == kOwn || candidate.engine == engine;
    if (!tallies[i].implausible || values[static_cast<std::size_t>(candidate.signal)]) continue;
    if (!of_engine) continue;
    reading.implausible = candidate.name;
    reading.implausible_value = *tallies[i].implausible;
  }
  const auto value_of = [&](EngineSignal signal) {
    return values[static_cast<std::size_t>(signal)];
  };

  reading.running = to_float(value_of(kRunning));
  reading.waiting = to_float(value_of(kWaiting));
  reading.queued_tokens = to_float(value_of(kQueuedTokens));
  if (const auto usage = value_of(kKvUsage)) {
    reading.kv_usage = static_cast<float>(std::min(*usage, 1.0));
  }
  std::optional<double> queries = value_of(kPrefixQueries);
  const std::optional<double> hits = value_of(kPrefixHits);
  if (!queries && hits && value_of(kPrefixMisses)) queries = *hits + *value_of(kPrefixMisses);
  if (queries) reading.prefix_queries = *queries;
  if (hits) reading.prefix_hits = *hits;
  const std::optional<double> rate = value_of(kPrefixHitRate);
  const bool own_rate = rate && (seen[kOwn] & bit(kPrefixHitRate)) != 0;
  if (queries && hits && *queries > 0 && !own_rate) {
    reading.prefix_hit_rate = static_cast<float>(std::min(*hits / *queries, 1.0));
  } else if (rate) {
    reading.prefix_hit_rate = static_cast<float>(std::min(*rate, 1.0));
  }
  const std::optional<double> block = value_of(kBlockTokens);
  if (block && *block <= 1e6) reading.block_tokens = static_cast<std::uint32_t>(*block);
  if (const auto capacity = value_of(kCapacityTokens)) {
    reading.kv_capacity_tokens = static_cast<std::uint64_t>(*capacity);
  } else if (const auto blocks = value_of(kBlocks); blocks && *blocks < 1e9) {
    reading.kv_capacity_tokens = static_cast<std::uint64_t>(*blocks) * reading.block_tokens;
  }
  if (const auto awake = value_of(kAwake)) reading.awake = *awake > 0;
  if (const auto blocks = value_of(kBlocks); blocks && *blocks < 1e9) {
    reading.kv_blocks = static_cast<std::uint64_t>(*blocks);
  }
  if (const auto caching = value_of(kPrefixCaching)) reading.prefix_caching = *caching > 0;
  return reading;
}

}  // namespace pointsman
