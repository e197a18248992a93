#include "telemetry/metrics.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST(Counter, AReaderNeverSeesItFall) {
  Counter counter;
  std::thread writer([&counter] {
    for (int i = 0; i < 100'000; ++i) counter.add();
  });
  std::uint64_t last = 0;
  while (last < 100'000) {
    const std::uint64_t now = counter.value();
    ASSERT_GE(now, last);
    last = now;
  }
  writer.join();
  EXPECT_EQ(counter.value(), 100'000U);
}

TEST(Histogram, ABoundBelongsToItsOwnBucket) {
  // Prometheus: a bucket counts values less than or equal to its bound.
  Histogram histogram(kLatencyBounds);
  histogram.observe(milliseconds(5));
  histogram.observe(milliseconds(6));
  histogram.observe(seconds(601));
  histogram.observe(Duration{-1});
  const HistogramValue value = histogram.value();
  EXPECT_EQ(value.buckets[0], 2U);
  EXPECT_EQ(value.buckets[1], 1U);
  EXPECT_EQ(value.buckets[kHistogramBounds], 1U);
  EXPECT_EQ(value.count(), 4U);
  EXPECT_NEAR(value.sum, 601.011, 1e-9);
}

TEST(WordCounter, FurtherWordsThanItHasRoomForCountAsOther) {
  static std::vector<std::string> words;
  for (int i = 0; i < 100; ++i) words.push_back("word" + std::to_string(i));
  WordCounter counter;
  for (const std::string& word : words) counter.add(word);
  for (const std::string& word : words) counter.add(word);
  std::uint64_t sum = 0;
  std::uint64_t other = 0;
  std::size_t series = 0;
  counter.for_each([&](std::string_view word, std::uint64_t count) {
    ++series;
    sum += count;
    if (word == "other") other += count;
  });
  EXPECT_EQ(series, WordCounter::kWords);
  EXPECT_EQ(sum, 200U);
  EXPECT_EQ(other, 200U - 2 * (WordCounter::kWords - 1));
}

TEST(RecentQuantiles, AreWithinEightPercentOfTheTruth) {
  ManualClock clock;
  RecentQuantiles quantiles;
  for (int i = 1; i <= 1000; ++i) {
    quantiles.observe(milliseconds(10 * i), clock.now());  // 10 ms to 10 s, evenly
    clock.advance(milliseconds(50));
  }
  const RecentQuantiles::Snapshot snapshot = quantiles.snapshot(clock.now());
  EXPECT_EQ(snapshot.count, 1000U);
  EXPECT_NEAR(to_seconds(snapshot.p50), 5.0, 0.08 * 5.0);
  EXPECT_NEAR(to_seconds(snapshot.p95), 9.5, 0.08 * 9.5);
}

TEST(RecentQuantiles, ForgetWhatIsOlderThanSeventySeconds) {
  ManualClock clock;
  RecentQuantiles quantiles;
  quantiles.observe(seconds(9), clock.now());
  clock.advance(seconds(59));
  EXPECT_EQ(quantiles.snapshot(clock.now()).count, 1U);
  clock.advance(seconds(12));
  EXPECT_EQ(quantiles.snapshot(clock.now()).count, 0U);
  quantiles.observe(milliseconds(100), clock.now());
  const RecentQuantiles::Snapshot snapshot = quantiles.snapshot(clock.now());
  EXPECT_EQ(snapshot.count, 1U);
  EXPECT_NEAR(to_seconds(snapshot.p95), 0.1, 0.01);
}

TEST(RecentQuantiles, CountEverySampleOfSeveralThreads) {
  ManualClock clock;
  RecentQuantiles quantiles;
  quantiles.observe(seconds(1), clock.now());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) quantiles.observe(seconds(1), clock.now());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(quantiles.snapshot(clock.now()).count, 4001U);
}

TEST(Exposition, IsPrometheusText) {
  // Written by hand after the format's specification, version 0.0.4.
  Exposition out;
  out.family("a_total", Exposition::Type::kCounter, "Line\nbreak and back\\slash \"quoted\".");
  out.sample({}, std::uint64_t{3});
  out.family("b", Exposition::Type::kGauge, "B.");
  out.sample({{"url", "http://h\"\\\n"}, {"x", "y"}}, 0.25);
  out.sample({}, std::numeric_limits<double>::quiet_NaN());
  out.sample({}, std::numeric_limits<double>::infinity());
  EXPECT_EQ(out.take(),
            "# HELP a_total Line\\nbreak and back\\\\slash \"quoted\".\n"
            "# TYPE a_total counter\n"
            "a_total 3\n"
            "# HELP b B.\n"
            "# TYPE b gauge\n"
            "b{url=\"http://h\\\"\\\\\\n\",x=\"y\"} 0.25\n"
            "b NaN\n"
            "b +Inf\n");
}

TEST(Exposition, HistogramBucketsAreCumulativeAndEndAtInfinity) {
  Histogram histogram(kGapBounds);
  histogram.observe(milliseconds(1));
  histogram.observe(milliseconds(2));
  histogram.observe(seconds(11));
  Exposition out;
  out.family("gap_seconds", Exposition::Type::kHistogram, "Gaps.");
  out.histogram({{"a", "b"}}, histogram.bounds(), histogram.value());
  const std::string text = out.take();
  EXPECT_THAT(text, HasSubstr("gap_seconds_bucket{a=\"b\",le=\"0.001\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("gap_seconds_bucket{a=\"b\",le=\"0.0025\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("gap_seconds_bucket{a=\"b\",le=\"10\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("gap_seconds_bucket{a=\"b\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("gap_seconds_sum{a=\"b\"} 11.003\n"));
  EXPECT_THAT(text, HasSubstr("gap_seconds_count{a=\"b\"} 3\n"));
}

}  // namespace
}  // namespace pointsman
