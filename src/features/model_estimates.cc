#include "features/model_estimates.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "features/block_hash.h"

namespace pointsman {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// The sums speak of about so many bytes of prompts: many short ones, of which the template's share
// is large, do not drown what the long ones say.
constexpr float kMemoryBytes = 262'144;
// The configured ratio counts as one prompt of this size, and no prompt counts as more than kMost.
constexpr float kPriorBytes = 4096;
constexpr float kMostBytes = 65'536;

// Samples after which the older half of the histogram's weight is let go.
constexpr std::uint32_t kFadeAt = 4096;
// The means are made anew at each of the first samples and at every eighth later.
constexpr std::uint32_t kFirstSamples = 32;
constexpr std::uint32_t kSettleEvery = 8;

std::uint64_t key_of(std::string_view model) {
  return std::max<std::uint64_t>(hash_bytes(model), 1);
}

std::size_t bucket_of(std::uint32_t tokens, std::size_t buckets) {
  const std::uint64_t length = std::max<std::uint32_t>(tokens, 1);
  const auto log2 = static_cast<std::size_t>(std::bit_width(length)) - 1;
  const bool upper = length * length >= std::uint64_t{2} << (2 * log2);
  return std::min(2 * log2 + (upper ? 1 : 0), buckets - 1);
}

double edge(std::size_t bucket) {
  const double power = std::ldexp(1.0, static_cast<int>(bucket / 2));
  return bucket % 2 == 0 ? power : power * 1.4142135623730951;
}

}  // namespace

ModelEstimates::ModelEstimates(double bytes_per_token)
    : bytes_per_token_(std::clamp(bytes_per_token, kLeastBytesPerToken, kMostBytesPerToken)) {
  const auto prior = static_cast<float>(kPriorBytes / bytes_per_token_);
  for (Entry& entry : entries_) entry.prompt.store({kPriorBytes, prior}, kRelaxed);
}

const ModelEstimates::Entry& ModelEstimates::find(std::string_view model) const {
  const std::uint64_t key = key_of(model);
  for (std::size_t i = 0; i < kModels; ++i) {
    const Entry& entry = entries_[(key + i) % kModels];
    const std::uint64_t there = entry.key.load(kRelaxed);
    // What stands in a free place is what is known of a model that was never heard of.
    if (there == key || there == 0) return entry;
  }
  return entries_.back();
}

ModelEstimates::Entry& ModelEstimates::make(std::string_view model) {
  const std::uint64_t key = key_of(model);
  for (std::size_t i = 0; i < kModels; ++i) {
    Entry& entry = entries_[(key + i) % kModels];
    std::uint64_t there = 0;
    if (entry.key.compare_exchange_strong(there, key, kRelaxed) || there == key) return entry;
  }
  return entries_.back();
}

double ModelEstimates::bytes_per_token(std::string_view model) const {
  const Sums sums = find(model).prompt.load(kRelaxed);
  return std::clamp(static_cast<double>(sums.bytes) / static_cast<double>(sums.tokens),
                    kLeastBytesPerToken, kMostBytesPerToken);
}

void ModelEstimates::learn_prompt(std::string_view model, std::uint64_t bytes,
                                  std::uint32_t tokens) {
  if (bytes == 0 || tokens == 0) return;
  Sums sample{static_cast<float>(bytes), static_cast<float>(tokens)};
  if (sample.bytes > kMostBytes) {
    sample.tokens *= kMostBytes / sample.bytes;
    sample.bytes = kMostBytes;
  }
  std::atomic<Sums>& prompt = make(model).prompt;
  const Sums old = prompt.load(kRelaxed);
  const float kept = kMemoryBytes / (kMemoryBytes + sample.bytes);
  prompt.store({kept * old.bytes + sample.bytes, kept * old.tokens + sample.tokens}, kRelaxed);
}

std::uint32_t ModelEstimates::expected_output(std::string_view model, std::uint32_t limit) const {
  const Entry& entry = find(model);
  if (entry.samples.load(kRelaxed) == 0) return 0;
  const double whole = entry.mean[kBuckets].load(kRelaxed);
  double mean = whole;
  if (limit > 0 && limit < edge(kBuckets)) {
    const std::size_t bucket = bucket_of(limit, kBuckets);
    const double low = edge(bucket);
    const double share = (limit - low) / (edge(bucket + 1) - low);
    const double below = entry.mean[bucket].load(kRelaxed);
    const double above = entry.mean[bucket + 1].load(kRelaxed);
    mean = std::min(below + share * (above - below), static_cast<double>(limit));
  }
  return static_cast<std::uint32_t>(std::lround(std::max(mean, 1.0)));
}

void ModelEstimates::learn_output(std::string_view model, std::uint32_t tokens,
                                  std::uint32_t limit) {
  if (tokens == 0) return;
  Entry& entry = make(model);
  const bool cut = limit > 0 && tokens >= limit;
  const std::size_t bucket = bucket_of(tokens, kBuckets);
  (cut ? entry.cut : entry.ended)[bucket].fetch_add(1, kRelaxed);
  const std::uint32_t samples = entry.samples.fetch_add(1, kRelaxed) + 1;
  if (samples >= kFadeAt) fade(entry);
  if (samples <= kFirstSamples || samples % kSettleEvery == 0) settle(entry);
}

// The histogram as a survival curve S, and its integral from 0. Within a bucket the cut samples are
// at risk for half of it, and S falls evenly. Beyond the longest sample nothing is assumed.
void ModelEstimates::settle(Entry& entry) {
  std::array<double, kBuckets> ended{};
  std::array<double, kBuckets> cut{};
  double at_risk = 0;
  for (std::size_t k = 0; k < kBuckets; ++k) {
    ended[k] = entry.ended[k].load(kRelaxed);
    cut[k] = entry.cut[k].load(kRelaxed);
    at_risk += ended[k] + cut[k];
  }
  double survive = 1;
  double mean = 1;  // every answer has a token
  for (std::size_t k = 0; k < kBuckets; ++k) {
    entry.mean[k].store(static_cast<float>(mean), kRelaxed);
    if (at_risk < 0.5) continue;  // no sample is as long
    const double exposed = at_risk - cut[k] / 2;
    const double further = exposed > 0 ? survive * std::max(0.0, 1 - ended[k] / exposed) : survive;
    mean += (edge(k + 1) - edge(k)) * (survive + further) / 2;
    survive = further;
    at_risk -= ended[k] + cut[k];
  }
  entry.mean[kBuckets].store(static_cast<float>(mean), kRelaxed);
}

void ModelEstimates::fade(Entry& entry) {
  std::uint32_t left = 0;
  for (auto* const counts : {&entry.ended, &entry.cut}) {
    for (std::atomic<std::uint32_t>& count : *counts) {
      const std::uint32_t half = count.load(kRelaxed) / 2;
      count.store(half, kRelaxed);
      left += half;
    }
  }
  entry.samples.store(std::max(left, kFirstSamples + 1), kRelaxed);
}

}  // namespace pointsman
