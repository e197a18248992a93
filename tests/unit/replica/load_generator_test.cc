#include "replica/load_generator.h"

#include <future>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/served_replica.h"

namespace pointsman {
namespace {

using test::ServedReplica;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

LoadOptions short_load(const std::vector<ServedReplica*>& replicas) {
  LoadOptions options;
  for (const ServedReplica* replica : replicas) {
    options.targets.emplace_back(asio::ip::address_v4::loopback(), replica->port());
  }
  options.workload.first_prompt = {.median = 300, .sigma = 0.5};
  options.workload.follow_up = {.median = 100, .sigma = 0.5};
  options.workload.output = {.median = 20, .sigma = 0.5};
  options.workload.think_s = 0.1;
  options.users = 6;
  options.requests = 60;
  options.warm_up = 15;
  options.speed = 100;
  return options;
}

LoadResult run(const LoadOptions& options) {
  std::promise<LoadResult> result;
  ReactorThread thread;
  std::unique_ptr<LoadGenerator> load;
  thread.reactor().post([&] {
    load = std::make_unique<LoadGenerator>(thread.reactor(), options);
    load->start([&](LoadResult done) { result.set_value(std::move(done)); });
  });
  LoadResult done = result.get_future().get();
  thread.join();
  return done;
}

TEST(LoadGenerator, MeasuresEveryRequestOnceAndFindsTheCacheWarm) {
  ServedReplica replica;
  const LoadResult result = run(short_load({&replica}));
  EXPECT_EQ(result.failed, 0U) << result.first_failure;
  ASSERT_THAT(result.samples, SizeIs(60));
  std::set<std::pair<std::uint64_t, std::uint32_t>> seen;
  bool follow_up = false;
  for (const LoadSample& sample : result.samples) {
    EXPECT_TRUE(seen.emplace(sample.conversation, sample.turn).second);
    EXPECT_GT(sample.ttft_s, 0);
    EXPECT_GE(sample.e2e_s, sample.ttft_s);
    follow_up |= sample.turn > 0;
  }
  EXPECT_TRUE(follow_up);
  EXPECT_GT(result.window_completions, 0U);
  EXPECT_GT(result.window_s, 0);
  const ReplicaStats stats = replica.stats();
  EXPECT_EQ(stats.received, 75U);
  EXPECT_EQ(stats.completed, 75U);
  EXPECT_EQ(stats.in_flight, 0U);
  const sim::EngineState state = replica.with([](Replica& r) { return r.engine_state(); });
  // One replica sees whole conversations: most of every follow-up prompt is found.
  EXPECT_GT(state.prefix_hits, state.prefix_queries / 4);
}

TEST(LoadGenerator, CountsFailuresAndSaysWhatTheFirstWas) {
  ServedReplica replica;
  replica.add_fault({.count = 3, .status = 503, .body = "busy"});
  LoadOptions options = short_load({&replica});
  options.warm_up = 0;
  const LoadResult result = run(options);
  EXPECT_EQ(result.failed, 3U);
  EXPECT_THAT(result.samples, SizeIs(57));
  EXPECT_THAT(result.first_failure, HasSubstr("status 503"));
}

TEST(LoadGenerator, AStreamWithoutItsEndIsAFailure) {
  ServedReplica replica;
  replica.add_fault({.after_events = 3});
  LoadOptions options = short_load({&replica});
  options.warm_up = 0;
  EXPECT_EQ(run(options).failed, 1U);
}

}  // namespace
}  // namespace pointsman
