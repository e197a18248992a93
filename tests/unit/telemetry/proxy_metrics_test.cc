#include "telemetry/proxy_metrics.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::string page(const ProxyMetrics& metrics) {
  Exposition out;
  metrics.write(out);
  return out.take();
}

TEST(ProxyMetrics, ShowsTheSumOfItsThreads) {
  ProxyMetrics metrics(3);
  for (std::size_t thread = 0; thread < 3; ++thread) {
    metrics.shard(thread).request_started();
    metrics.shard(thread).request_started();
    metrics.shard(thread).request_ended(200, milliseconds(30));
    metrics.shard(thread).retried(RetryReason::kUnavailable);
    metrics.shard(thread).own_errors.add("no_replica");
  }
  metrics.shard(0).longest_plain.observe(milliseconds(1500));
  metrics.shard(2).longest_plain.observe(milliseconds(2500));
  metrics.shard(2).longest_plain.observe(milliseconds(500));
  metrics.shard(0).held_body_bytes.add(100);
  metrics.shard(1).held_body_bytes.sub(40);  // given back by another thread than took it
  EXPECT_EQ(metrics.in_flight(), 3);
  EXPECT_EQ(metrics.held_body_bytes(), 60);
  const std::string text = page(metrics);
  EXPECT_THAT(text, HasSubstr("pointsman_requests_total{code=\"200\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_requests_in_flight 3\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_retries_total{reason=\"503\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_retries_total{reason=\"lost\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_own_errors_total{kind=\"no_replica\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_request_duration_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_held_body_bytes 60\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_longest_answer_seconds{kind=\"plain\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("pointsman_longest_answer_seconds{kind=\"stream\"} 0\n"));
}

TEST(ProxyMetrics, CodesThatDoNotExistMakeOneSeriesAtMost) {
  ProxyMetrics metrics(1);
  for (int code : {-5, 0, 99, 600, 70'000, 1 << 30}) {
    metrics.shard(0).request_started();
    metrics.shard(0).request_ended(code, {});
  }
  const std::string text = page(metrics);
  EXPECT_THAT(text, HasSubstr("pointsman_requests_total{code=\"0\"} 6\n"));
  EXPECT_THAT(text, Not(HasSubstr("code=\"99\"")));
}

TEST(ProxyMetrics, EveryFamilyIsDescribedOnce) {
  ProxyMetrics metrics(1);
  const std::string text = page(metrics);
  std::size_t families = 0;
  for (std::size_t at = text.find("# TYPE "); at != std::string::npos;
       at = text.find("# TYPE ", at + 1)) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_EQ(text.find(line, at + 1), std::string::npos) << line;
    ++families;
  }
  EXPECT_GE(families, 20U);
}

TEST(ProxyMetrics, AReplicasFiguresStartAgainWhenItIsForgotten) {
  ManualClock clock;
  ProxyMetrics metrics(1);
  metrics.replica_try_ended(7, ProxyMetrics::ReplicaOutcome::kFinished);
  metrics.replica_try_ended(7, ProxyMetrics::ReplicaOutcome::kFailed);
  metrics.replica_ttft(7, milliseconds(250), clock.now());
  ProxyMetrics::ReplicaFigures figures = metrics.replica(7, clock.now());
  EXPECT_EQ(figures.tries[0], 1U);
  EXPECT_EQ(figures.tries[1], 1U);
  EXPECT_EQ(figures.ttft.count, 1U);
  EXPECT_NEAR(to_seconds(figures.ttft.p50), 0.25, 0.02);
  metrics.forget_replica(7);
  figures = metrics.replica(7, clock.now());
  EXPECT_EQ(figures.tries[0], 0U);
  EXPECT_EQ(figures.ttft.count, 0U);
}

TEST(ProxyMetrics, AnIndexBeyondAllReplicasIsIgnored) {
  ManualClock clock;
  ProxyMetrics metrics(1);
  metrics.replica_try_ended(kNoReplica, ProxyMetrics::ReplicaOutcome::kFailed);
  metrics.replica_ttft(kMaxReplicas, milliseconds(1), clock.now());
  metrics.forget_replica(kNoReplica);
  EXPECT_EQ(metrics.replica(kNoReplica, clock.now()).tries[1], 0U);
}

}  // namespace
}  // namespace pointsman
