#include "sim/request_log.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

// The smallest value that at least the share q of all does not exceed.
double percentile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<double>(i + 1) >= q * static_cast<double>(values.size())) return values[i];
  }
  return values.back();
}

TEST(RequestLog, PercentilesAreThoseOfTheSortedTimes) {
  for (const int count : {1, 2, 99, 100, 101, 3'333}) {
    Rng rng(static_cast<std::uint64_t>(count));
    RequestLog log;
    std::vector<double> ttft;
    std::vector<double> ttft_short;
    std::vector<double> ttft_long;
    std::vector<double> tpot;
    std::vector<double> e2e;
    double ttft_sum = 0;
    int good = 0;
    for (int i = 0; i < count; ++i) {
      RequestLog::Entry entry;
      entry.ttft = Duration(1 + rng.below(2'000'000'000));
      entry.output_tokens = static_cast<std::uint32_t>(1 + rng.below(5)) & 0x7fffffffU;
      entry.e2e = entry.ttft + Duration((entry.output_tokens - 1) * rng.below(100'000'000));
      entry.is_long = rng.below(10) == 0 ? 1 : 0;
      log.add(entry);
      const double first = 0.25 + to_seconds(entry.ttft);
      ttft.push_back(first);
      ttft_sum += first;
      (entry.is_long == 1 ? ttft_long : ttft_short).push_back(first);
      e2e.push_back(0.25 + to_seconds(entry.e2e));
      double per_token = 0;
      if (entry.output_tokens > 1) {
        per_token = to_seconds(entry.e2e - entry.ttft) / (entry.output_tokens - 1);
        tpot.push_back(per_token);
      }
      if (first <= 1.2 && per_token <= 0.06) ++good;
    }
    MeasureSpec spec;
    spec.overhead = std::chrono::milliseconds(250);
    spec.goodput_ttft_s = 1.2;
    spec.goodput_tpot_s = 0.06;
    RunResult result;
    log.measure(spec, 10, result);
    EXPECT_EQ(result.requests, count);
    EXPECT_DOUBLE_EQ(result.ttft_p50_s, percentile(ttft, 0.5));
    EXPECT_DOUBLE_EQ(result.ttft_p90_s, percentile(ttft, 0.9));
    EXPECT_DOUBLE_EQ(result.ttft_p99_s, percentile(ttft, 0.99));
    EXPECT_DOUBLE_EQ(result.e2e_p50_s, percentile(e2e, 0.5));
    EXPECT_DOUBLE_EQ(result.e2e_p99_s, percentile(e2e, 0.99));
    if (!ttft_short.empty()) {
      EXPECT_DOUBLE_EQ(result.ttft_p99_short_s, percentile(ttft_short, 0.99));
    }
    if (ttft_long.empty()) {
      EXPECT_TRUE(std::isnan(result.ttft_p99_long_s));
    } else {
      EXPECT_DOUBLE_EQ(result.ttft_p50_long_s, percentile(ttft_long, 0.5));
      EXPECT_DOUBLE_EQ(result.ttft_p99_long_s, percentile(ttft_long, 0.99));
    }
    if (!tpot.empty()) {
      EXPECT_NEAR(result.tpot_p50_s, percentile(tpot, 0.5), 1e-12);
      EXPECT_NEAR(result.tpot_p99_s, percentile(tpot, 0.99), 1e-12);
    }
    EXPECT_NEAR(result.ttft_mean_s, ttft_sum / count, 1e-9);
    EXPECT_DOUBLE_EQ(result.goodput_rps, good / 10.0);
  }
}

TEST(RequestLog, WithoutRequestsNothingIsKnown) {
  RequestLog log;
  RunResult result;
  log.measure(MeasureSpec{}, 10, result);
  EXPECT_EQ(result.requests, 0);
  EXPECT_TRUE(std::isnan(result.ttft_p50_s));
  EXPECT_TRUE(std::isnan(result.goodput_rps));
}

}  // namespace
}  // namespace pointsman::sim
