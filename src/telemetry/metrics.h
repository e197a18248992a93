#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"

// Counting for a program with one data thread per core.
//
// The types here have one writer: each thread counts in a set of its own (a shard), with plain
// loads and stores that are atomic only so that another thread may read them. Counting costs about
// a nanosecond and never makes threads wait for each other. Whoever shows the figures adds up the
// shards.
namespace pointsman {

// Only grows. One writer, any number of readers.
class Counter {
 public:
  void add(std::uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// Goes up and down. One writer per shard; the sum over the shards is what is shown, so that a
// single shard may be below zero.
class Gauge {
 public:
  void add(std::int64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void sub(std::int64_t n = 1) { add(-n); }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// The longest duration so far. One writer, any number of readers.
class Longest {
 public:
  void observe(Duration value) {
    if (value > this->value()) nanoseconds_.store(value.count(), std::memory_order_relaxed);
  }
  [[nodiscard]] Duration value() const {
    return Duration(nanoseconds_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<Duration::rep> nanoseconds_{0};
};

// Upper bounds of buckets in seconds, ascending. For times to first token and whole requests: a
// cached prompt takes milliseconds, a queue minutes.
inline constexpr std::array kLatencyBounds = {0.005, 0.01, 0.025, 0.05, 0.1,  0.25,  0.5,   1.0,
                                              2.5,   5.0,  10.0,  30.0, 60.0, 120.0, 300.0, 600.0};
// For gaps between tokens.
inline constexpr std::array kGapBounds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075,
                                          0.1,   0.15,   0.25,  0.5,  1.0,  2.5,  5.0,  10.0};
inline constexpr std::size_t kHistogramBounds = 16;

// What a histogram held at one moment, or the sum of several.
struct HistogramValue {
  std::array<std::uint64_t, kHistogramBounds + 1> buckets{};  // the last: above all bounds
  double sum = 0;                                             // seconds

  [[nodiscard]] std::uint64_t count() const;
  HistogramValue& operator+=(const HistogramValue& other);
};

// Durations in fixed buckets. One writer, any number of readers.
class Histogram {
 public:
  explicit Histogram(std::span<const double, kHistogramBounds> bounds) : bounds_(bounds) {}

  void observe(Duration value, std::uint64_t times = 1);
  [[nodiscard]] HistogramValue value() const;
  [[nodiscard]] std::span<const double, kHistogramBounds> bounds() const { return bounds_; }

 private:
  std::span<const double, kHistogramBounds> bounds_;
  std::array<Counter, kHistogramBounds + 1> buckets_{};
  std::atomic<double> sum_{0};
};

// A counter per word. The words must be literals of the program, never anything from outside; there
// is room for 64, further ones count as "other". One writer, any number of readers.
class WordCounter {
 public:
  static constexpr std::size_t kWords = 64;

  void add(std::string_view word);

  // Calls visit(word, count) for each word seen so far.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const std::size_t size = size_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < size; ++i) visit(words_[i], counts_[i].value());
  }

 private:
  std::atomic<std::size_t> size_{0};
  std::array<std::string_view, kWords> words_{};
  std::array<Counter, kWords> counts_{};
};

// Quantiles of the last minute, to within 8 %, in constant memory: durations are counted in buckets
// that grow by 16 % each, in slots of ten seconds. Any number of writers and readers; where two
// writers open a slot at the same moment a few samples may be lost, which no quantile notices.
class RecentQuantiles {
 public:
  void observe(Duration value, TimePoint now);

  struct Snapshot {
    std::uint64_t count = 0;
    Duration p50{};
    Duration p95{};
  };
  // Of the samples of the last 60 to 70 seconds; all zero where there are none.
  [[nodiscard]] Snapshot snapshot(TimePoint now) const;
  void clear();

 private:
  static constexpr std::size_t kSlots = 7;
  static constexpr std::size_t kBuckets = 96;
  struct Slot {
    std::atomic<std::int64_t> number{-1};  // which ten seconds since the clock's start
    std::array<std::atomic<std::uint32_t>, kBuckets> counts{};
  };
  std::array<Slot, kSlots> slots_{};
};

// Labels of one sample, in the order in which they are shown.
using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

// Writes Prometheus' text exposition format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// All samples of a family must follow its family() call before the next one.
class Exposition {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  enum class Type : std::uint8_t { kCounter, kGauge, kHistogram };
  void family(std::string_view name, Type type, std::string_view help);
  void sample(Labels labels, double value);
  void sample(Labels labels, std::uint64_t value);
  void histogram(Labels labels, std::span<const double, kHistogramBounds> bounds,
                 const HistogramValue& value);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void series(std::string_view suffix, Labels labels, std::string_view extra_label,
              std::string_view extra_value);

  std::string text_;
  std::string name_;  // of the current family
};

}  // namespace pointsman
