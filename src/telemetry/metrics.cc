#include "telemetry/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace pointsman {
namespace {

constexpr Duration kSlotTime = std::chrono::seconds(10);
constexpr double kSmallest = 0.001;  // seconds: the first bucket of RecentQuantiles ends here
constexpr double kGrowth = 1.16;

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value);
  return {text, end.ptr};
}

// Label values escape backslash, quote and line feed; help texts only the first and the last.
void append_escaped(std::string_view text, bool quotes, std::string& out) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

}  // namespace

std::uint64_t HistogramValue::count() const {
  std::uint64_t sum_of_buckets = 0;
  for (const std::uint64_t bucket : buckets) sum_of_buckets += bucket;
  return sum_of_buckets;
}

HistogramValue& HistogramValue::operator+=(const HistogramValue& other) {
  for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] += other.buckets[i];
  sum += other.sum;
  return *this;
}

void Histogram::observe(Duration value, std::uint64_t times) {
  const double seconds = std::max(0.0, to_seconds(value));
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), seconds);
  buckets_[static_cast<std::size_t>(bound - bounds_.begin())].add(times);
  sum_.store(sum_.load(std::memory_order_relaxed) + static_cast<double>(times) * seconds,
             std::memory_order_relaxed);
}

HistogramValue Histogram::value() const {
  HistogramValue value;
  for (std::size_t i = 0; i < buckets_.size(); ++i) value.buckets[i] = buckets_[i].value();
  value.sum = sum_.load(std::memory_order_relaxed);
  return value;
}

void WordCounter::add(std::string_view word) {
  const std::size_t size = size_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < size; ++i) {
    if (words_[i] == word) {
      counts_[i].add();
      return;
    }
  }
  if (size == kWords) {
    counts_[kWords - 1].add();
    return;
  }
  words_[size] = size == kWords - 1 ? "other" : word;
  counts_[size].add();
  size_.store(size + 1, std::memory_order_release);
}

void RecentQuantiles::observe(Duration value, TimePoint now) {
  const std::int64_t number = now.time_since_epoch() / kSlotTime;
  Slot& slot = slots_[static_cast<std::size_t>(number) % kSlots];
  std::int64_t held = slot.number.load(std::memory_order_acquire);
  if (held > number) return;  // this thread's time is a minute behind another's
  if (held < number &&
      slot.number.compare_exchange_strong(held, number, std::memory_order_acq_rel)) {
    for (auto& count : slot.counts) count.store(0, std::memory_order_relaxed);
  }
  const double seconds = to_seconds(value);
  std::size_t bucket = 0;
  if (seconds > kSmallest) {
    bucket = std::min(kBuckets - 1, 1 + static_cast<std::size_t>(std::log(seconds / kSmallest) /
                                                                 std::log(kGrowth)));
  }
  slot.counts[bucket].fetch_add(1, std::memory_order_relaxed);
}

RecentQuantiles::Snapshot RecentQuantiles::snapshot(TimePoint now) const {
  const std::int64_t number = now.time_since_epoch() / kSlotTime;
  std::array<std::uint64_t, kBuckets> sums{};
  Snapshot snapshot;
  for (const Slot& slot : slots_) {
    const std::int64_t held = slot.number.load(std::memory_order_acquire);
    if (held < 0 || held + static_cast<std::int64_t>(kSlots) <= number) continue;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      const std::uint64_t count = slot.counts[i].load(std::memory_order_relaxed);
      sums[i] += count;
      snapshot.count += count;
    }
  }
  if (snapshot.count == 0) return snapshot;
  const auto quantile = [&](double share) {
    const auto rank =
        static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(snapshot.count)));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += sums[i];
      if (seen >= rank) {
        // The geometric middle of bucket i, which reaches from kGrowth^(i-1) to kGrowth^i.
        return from_seconds(i == 0 ? kSmallest
                                   : kSmallest * std::pow(kGrowth, static_cast<double>(i) - 0.5));
      }
    }
    return Duration{};
  };
  snapshot.p50 = quantile(0.5);
  snapshot.p95 = quantile(0.95);
  return snapshot;
}

void RecentQuantiles::clear() {
  for (Slot& slot : slots_) {
    for (auto& count : slot.counts) count.store(0, std::memory_order_relaxed);
  }
}

void Exposition::family(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ");
  append_escaped(help, false, text_);
  text_.append("\n# TYPE ").append(name);
  switch (type) {
    case Type::kCounter:
      text_.append(" counter\n");
      break;
    case Type::kGauge:
      text_.append(" gauge\n");
      break;
    case Type::kHistogram:
      text_.append(" histogram\n");
      break;
  }
}

void Exposition::series(std::string_view suffix, Labels labels, std::string_view extra_label,
                        std::string_view extra_value) {
  text_.append(name_).append(suffix);
  char before = '{';
  const auto append = [&](std::string_view name, std::string_view value) {
    text_ += before;
    before = ',';
    text_.append(name).append("=\"");
    append_escaped(value, true, text_);
    text_ += '"';
  };
  for (const auto& [name, value] : labels) append(name, value);
  if (!extra_label.empty()) append(extra_label, extra_value);
  if (before == ',') text_ += '}';
  text_ += ' ';
}

void Exposition::sample(Labels labels, double value) {
  series("", labels, "", "");
  text_.append(number_text(value)).append("\n");
}

void Exposition::sample(Labels labels, std::uint64_t value) {
  series("", labels, "", "");
  text_.append(std::to_string(value)).append("\n");
}

void Exposition::histogram(Labels labels, std::span<const double, kHistogramBounds> bounds,
                           const HistogramValue& value) {
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < value.buckets.size(); ++i) {
    cumulative += value.buckets[i];
    series("_bucket", labels, "le", i < bounds.size() ? number_text(bounds[i]) : "+Inf");
    text_.append(std::to_string(cumulative)).append("\n");
  }
  series("_sum", labels, "", "");
  text_.append(number_text(value.sum)).append("\n");
  series("_count", labels, "", "");
  text_.append(std::to_string(cumulative)).append("\n");
}

}  // namespace pointsman
