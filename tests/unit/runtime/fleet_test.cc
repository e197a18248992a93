#include "runtime/fleet.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace pointsman {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = ProbeResult::Kind;

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() {
    Fleet::Listener listener;
    listener.gone = [this](ReplicaIndex replica) { gone_.push_back(replica); };
    listener.forget = [this](ReplicaIndex replica) { forgotten_.push_back(replica); };
    fleet_.add_listener(listener);
  }

  static std::string url(int i) { return "http://192.0.2." + std::to_string(i) + ":8000"; }

  ReplicaIndex add(int i, const std::string& pool = "general") {
    ReplicaSpec spec;
    spec.url = url(i);
    spec.host = "192.0.2." + std::to_string(i);
    spec.port = 8000;
    spec.pool = pool;
    const Result<ReplicaIndex> added = fleet_.add(spec);
    EXPECT_TRUE(added.ok());
    return *added;
  }
  void add_ready(int count) {
    for (int i = 0; i < count; ++i) probe(add(i), Kind::kReady);
  }
  void probe(ReplicaIndex replica, Kind kind) { fleet_.probe_result(replica, {kind, "detail"}); }
  std::vector<ReplicaIndex> usable(PoolIndex pool = 0) { return fleet_.view()->pools[pool].usable; }
  std::vector<ReplicaIndex> candidates(std::string_view model, PoolIndex pool = 0) {
    const std::shared_ptr<const FleetView> view = fleet_.view();
    const auto span = view->pools[pool].candidates(model);
    return {span.begin(), span.end()};
  }

  ManualClock clock_;
  HealthOptions options_;
  Fleet fleet_{
      {{"general", PoolPurpose::kGeneral}, {"long", PoolPurpose::kLongContext}}, options_, clock_};
  std::vector<ReplicaIndex> gone_;
  std::vector<ReplicaIndex> forgotten_;
};

// Case D67: alive and not ready until a replica is.
TEST_F(FleetTest, StartsWithoutAUsableReplicaAndHasOneWhenItComes) {
  EXPECT_FALSE(fleet_.any_usable());
  EXPECT_EQ(fleet_.model_state("m"), ModelState::kUnusable);
  const ReplicaIndex a = add(1);
  EXPECT_FALSE(fleet_.any_usable());
  EXPECT_THAT(usable(), IsEmpty());
  probe(a, Kind::kRefused);
  probe(a, Kind::kReady);
  EXPECT_TRUE(fleet_.any_usable());
  EXPECT_THAT(usable(), ElementsAre(a));
  EXPECT_TRUE(fleet_.view()->replicas[a].usable);
}

TEST_F(FleetTest, TheGenerationMovesWithTheViewAndOnlyThen) {
  const ReplicaIndex a = add(1);
  const std::uint64_t before = fleet_.generation();
  probe(a, Kind::kNotReady);
  EXPECT_EQ(fleet_.generation(), before);
  probe(a, Kind::kReady);
  const std::uint64_t ready = fleet_.generation();
  EXPECT_GT(ready, before);
  EXPECT_EQ(fleet_.view()->generation, ready);
  probe(a, Kind::kReady);
  fleet_.tick();
  fleet_.request_succeeded(a);
  fleet_.request_failed(a, RequestFailure::kConnection);
  EXPECT_EQ(fleet_.generation(), ready);
}

TEST_F(FleetTest, ReplicasKeepTheirIndexAndTheirIdentity) {
  const ReplicaIndex a = add(1);
  const ReplicaIndex b = add(2, "long");
  const std::uint64_t identity = fleet_.view()->replicas[a].identity;
  EXPECT_NE(identity, fleet_.view()->replicas[b].identity);
  EXPECT_EQ(fleet_.view()->replicas[b].pool, 1);
  ASSERT_TRUE(fleet_.remove(url(1)).ok());
  EXPECT_THAT(forgotten_, ElementsAre(a));
  EXPECT_FALSE(fleet_.view()->replicas[a].usable);
  EXPECT_EQ(fleet_.spec(a)->url, url(1)) << "for exchanges that are still under way";
  EXPECT_FALSE(fleet_.status(a).has_value());
  const ReplicaIndex c = add(3);
  EXPECT_NE(c, a) << "a place is not given away while there are others";
  EXPECT_EQ(add(1), a) << "the same server gets its place back";
  EXPECT_EQ(fleet_.view()->replicas[a].identity, identity);
}

TEST_F(FleetTest, RefusesWhatIsThereAlreadyAndWhatItDoesNotKnow) {
  add(1);
  ReplicaSpec elsewhere;
  elsewhere.url = url(9);
  elsewhere.pool = "no-such";
  const Result<ReplicaIndex> result = fleet_.add(elsewhere);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("no-such"));
  EXPECT_FALSE(fleet_.remove(url(8)).ok());
  EXPECT_FALSE(fleet_.set_draining(url(8), true).ok());
}

// The same host, port and path prefix, however the URL is written.
TEST_F(FleetTest, RefusesTheSameReplicaInAnotherSpelling) {
  ReplicaSpec first;
  first.url = "http://host";
  first.host = "host";
  first.path_prefix = "/base";
  ASSERT_TRUE(fleet_.add(first).ok());
  ReplicaSpec again = first;
  again.url = "http://HOST:80/base/";
  again.host = "HOST";
  const Result<ReplicaIndex> added = fleet_.add(again);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().message, "replica http://HOST:80/base/ is there already, as http://host");

  ReplicaSpec other_port = first;
  other_port.port = 81;
  EXPECT_TRUE(fleet_.add(other_port).ok());
  ReplicaSpec other_prefix = first;
  other_prefix.path_prefix = "/Base";
  EXPECT_TRUE(fleet_.add(other_prefix).ok());
}

std::vector<std::string>& logged() {
  static std::vector<std::string> lines;
  return lines;
}

class FleetLogTest : public FleetTest {
 protected:
  FleetLogTest() {
    logged().clear();
    set_log_sink([](LogLevel level, std::string_view line) {
      logged().push_back((level == LogLevel::kWarning ? "warning: " : "info: ") +
                         std::string(line));
    });
  }
  ~FleetLogTest() override { set_log_sink(nullptr); }

  // What the next tick logs.
  std::vector<std::string> lines() {
    logged().clear();
    fleet_.tick();
    return logged();
  }
};

TEST_F(FleetLogTest, TellsOnceOfEachChangeOfUse) {
  const ReplicaIndex a = add(1);
  EXPECT_THAT(lines(), IsEmpty()) << "not probed yet";
  probe(a, Kind::kReady);
  EXPECT_THAT(lines(), ElementsAre("info: replica http://192.0.2.1:8000 is in"));
  EXPECT_THAT(lines(), IsEmpty());
  probe(a, Kind::kRefused);
  EXPECT_THAT(lines(), IsEmpty()) << "still in use";
  probe(a, Kind::kRefused);
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.1:8000 is out: gone: detail"));
  probe(a, Kind::kRefused);
  EXPECT_THAT(lines(), IsEmpty());
  probe(a, Kind::kReady);
  EXPECT_THAT(lines(), ElementsAre("info: replica http://192.0.2.1:8000 is in again"));
}

TEST_F(FleetLogTest, TellsOfAReplicaThatWasNeverThere) {
  probe(add(1), Kind::kRefused);
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.1:8000 is out: has not passed "
                                   "a probe yet: detail"));
}

TEST_F(FleetLogTest, TellsOfEjectionItsEndAndDraining) {
  add_ready(3);
  EXPECT_EQ(lines().size(), 3U);
  for (int i = 0; i < options_.own_5xx_out; ++i) {
    fleet_.request_failed(0, RequestFailure::kServerError);
  }
  EXPECT_THAT(logged(), testing::SizeIs(3)) << "never from a thread that serves requests";
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.0:8000 is out: ejected for its "
                                   "own 5xx answers, 10 s more"));
  clock_.advance(seconds(11));
  EXPECT_THAT(lines(), ElementsAre("info: replica http://192.0.2.0:8000 is in again"));
  ASSERT_TRUE(fleet_.set_draining(url(2), true).ok());
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.2:8000 is out: draining"));
  ASSERT_TRUE(fleet_.remove(url(2)).ok());
  EXPECT_THAT(lines(), IsEmpty()) << "whoever removes it says so";
}

TEST_F(FleetLogTest, TellsThatAnEjectedReplicaIsGoneOnce) {
  add_ready(3);
  lines();
  for (int i = 0; i < options_.faults_out; ++i) {
    fleet_.request_failed(0, RequestFailure::kConnection);
  }
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.0:8000 is out: ejected for "
                                   "connection faults, 10 s more"));
  probe(0, Kind::kRefused);
  EXPECT_THAT(lines(), IsEmpty());
  probe(0, Kind::kRefused);
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.0:8000 is out: gone: detail"));
  probe(0, Kind::kRefused);
  EXPECT_THAT(lines(), IsEmpty());
  probe(0, Kind::kReady);
  clock_.advance(seconds(11));
  EXPECT_THAT(lines(), ElementsAre("info: replica http://192.0.2.0:8000 is in again"));
}

TEST_F(FleetLogTest, ADrainedReplicaThatGoesIsNoNews) {
  add_ready(2);
  lines();
  ASSERT_TRUE(fleet_.set_draining(url(0), true).ok());
  EXPECT_THAT(lines(), ElementsAre("warning: replica http://192.0.2.0:8000 is out: draining"));
  probe(0, Kind::kRefused);
  probe(0, Kind::kRefused);
  EXPECT_THAT(lines(), IsEmpty());
}

TEST_F(FleetTest, APlaceIsReusedOnlyWhenAllAreTakenAndThenTheOldestOne) {
  for (std::size_t i = 0; i < kMaxReplicas; ++i) {
    ReplicaSpec spec;
    spec.host = "h" + std::to_string(i);
    spec.url = "http://" + spec.host;
    ASSERT_TRUE(fleet_.add(spec).ok());
    // One at a time is configured, all the others have left.
    if (i >= 2) {
      clock_.advance(seconds(1));
      ASSERT_TRUE(fleet_.remove("http://h" + std::to_string(i)).ok());
    }
  }
  ReplicaSpec spec;
  spec.url = "http://new";
  spec.host = "new";
  forgotten_.clear();
  EXPECT_EQ(*fleet_.add(spec), 2U);
  EXPECT_THAT(forgotten_, ElementsAre(2U));
}

TEST_F(FleetTest, TheViewHasWhatDecisionsNeedOfTheConfiguration) {
  ReplicaSpec spec;
  spec.url = "http://big";
  spec.host = "big";
  spec.weight = 4;
  spec.kv_capacity_tokens = 400'000;
  const ReplicaIndex index = *fleet_.add(spec);
  const Replica& replica = fleet_.view()->replicas[index];
  EXPECT_EQ(replica.weight, 4);
  EXPECT_EQ(replica.kv_capacity_tokens, 400'000U);
  EXPECT_FALSE(replica.usable) << "not probed yet";
}

TEST_F(FleetTest, DrainingTakesNothingNewAndCutsNothing) {
  add_ready(2);
  ASSERT_TRUE(fleet_.set_draining(url(0), true).ok());
  EXPECT_THAT(usable(), ElementsAre(1U));
  EXPECT_EQ(fleet_.status(0)->why, "draining");
  EXPECT_THAT(gone_, IsEmpty());
  ASSERT_TRUE(fleet_.set_draining(url(0), false).ok());
  EXPECT_THAT(usable(), ElementsAre(0U, 1U));
  EXPECT_THAT(forgotten_, IsEmpty());
}

TEST_F(FleetTest, SaysOnceThatAReplicaIsGoneAndThatItCameBack) {
  add_ready(2);
  fleet_.request_failed(0, RequestFailure::kRefused);
  EXPECT_THAT(gone_, IsEmpty());
  probe(0, Kind::kRefused);
  EXPECT_THAT(gone_, ElementsAre(0U));
  probe(0, Kind::kRefused);
  EXPECT_THAT(gone_, ElementsAre(0U));
  EXPECT_THAT(usable(), ElementsAre(1U));
  EXPECT_THAT(fleet_.status(0)->why, HasSubstr("gone"));
  probe(0, Kind::kReady);
  EXPECT_THAT(forgotten_, ElementsAre(0U));
  EXPECT_THAT(usable(), ElementsAre(0U, 1U));
}

TEST_F(FleetTest, SleepTakesItOutAndWakingForgetsItsCache) {
  add_ready(1);
  fleet_.set_awake(0, true);
  EXPECT_THAT(forgotten_, IsEmpty());
  fleet_.set_awake(0, false);
  EXPECT_FALSE(fleet_.any_usable());
  EXPECT_EQ(fleet_.status(0)->why, "asleep");
  fleet_.set_awake(0, true);
  EXPECT_TRUE(fleet_.any_usable());
  EXPECT_THAT(forgotten_, ElementsAre(0U));
}

// The kind of case D37: however bad the requests, the pool is never emptied.
TEST_F(FleetTest, EjectionsLeaveHalfOfAPool) {
  add_ready(5);
  for (int round = 0; round < 10; ++round) {
    for (ReplicaIndex i = 0; i < 5; ++i) fleet_.request_failed(i, RequestFailure::kServerError);
  }
  EXPECT_EQ(usable().size(), 3U) << "half of five, rounded up";
  clock_.advance(seconds(301));
  fleet_.tick();
  EXPECT_EQ(usable().size(), 5U);
}

TEST_F(FleetTest, TheOnlyReplicaOfAPoolIsNeverEjected) {
  add_ready(1);
  const ReplicaIndex other = add(9, "long");
  probe(other, Kind::kReady);
  for (int i = 0; i < 100; ++i) fleet_.request_failed(0, RequestFailure::kServerError);
  for (int i = 0; i < 100; ++i) fleet_.request_failed(0, RequestFailure::kConnection);
  EXPECT_THAT(usable(), ElementsAre(0U));
}

TEST_F(FleetTest, UnreadyReplicasCountAgainstTheFloor) {
  add_ready(4);
  for (int i = 0; i < 3; ++i) {
    probe(2, Kind::kTimedOut);
    probe(3, Kind::kTimedOut);
  }
  for (int i = 0; i < 10; ++i) fleet_.request_failed(0, RequestFailure::kServerError);
  EXPECT_THAT(usable(), ElementsAre(0U, 1U)) << "half of the pool is away already";
}

TEST_F(FleetTest, ASuccessBetweenFaultsKeepsAReplicaIn) {
  add_ready(4);
  for (int i = 0; i < 20; ++i) {
    fleet_.request_failed(0, RequestFailure::kConnection);
    fleet_.request_failed(0, RequestFailure::kConnection);
    fleet_.request_succeeded(0);
  }
  EXPECT_EQ(usable().size(), 4U);
}

TEST_F(FleetTest, AnEjectionEndsWithTheTick) {
  add_ready(2);
  for (int i = 0; i < 5; ++i) fleet_.request_failed(0, RequestFailure::kServerError);
  EXPECT_THAT(usable(), ElementsAre(1U));
  clock_.advance(seconds(9));
  fleet_.tick();
  EXPECT_THAT(usable(), ElementsAre(1U));
  clock_.advance(seconds(1));
  fleet_.tick();
  EXPECT_THAT(usable(), ElementsAre(0U, 1U));
}

TEST_F(FleetTest, AShuttingDownReplicaIsLeftAlone) {
  add_ready(2);
  fleet_.request_found_draining(0);
  EXPECT_THAT(usable(), ElementsAre(1U));
  EXPECT_THAT(gone_, IsEmpty());
  EXPECT_THAT(fleet_.status(0)->why, HasSubstr("shutting down"));
}

TEST_F(FleetTest, ModelsSelectTheReplicasThatServeThem) {
  add_ready(3);
  fleet_.set_models(0, {{"m1"}});
  fleet_.set_models(1, {{"m1", "m2", "m2"}});
  EXPECT_THAT(candidates("m1"), ElementsAre(0U, 1U, 2U)) << "2 has given no list";
  EXPECT_THAT(candidates("m2"), ElementsAre(1U, 2U));
  EXPECT_THAT(candidates("m3"), ElementsAre(2U));
  EXPECT_THAT(candidates(""), ElementsAre(0U, 1U, 2U));
  EXPECT_EQ(fleet_.model_state("m3"), ModelState::kServed) << "2 may serve it";
  fleet_.set_models(2, {{"m1"}});
  EXPECT_THAT(candidates("m2"), ElementsAre(1U));
  EXPECT_THAT(candidates("m3"), IsEmpty());
  EXPECT_EQ(fleet_.model_state("m1"), ModelState::kServed);
  EXPECT_EQ(fleet_.model_state("m3"), ModelState::kUnknown);
  EXPECT_EQ(fleet_.model_state("M1"), ModelState::kUnknown) << "names are compared exactly";
  EXPECT_EQ(fleet_.models_served(), 2U);
  ASSERT_TRUE(fleet_.set_draining(url(1), true).ok());
  EXPECT_EQ(fleet_.model_state("m2"), ModelState::kUnusable);
  EXPECT_EQ(fleet_.models_served(), 1U);
  fleet_.set_models(1, std::nullopt);
  EXPECT_EQ(fleet_.model_state("m3"), ModelState::kUnusable) << "not every list is known";
}

TEST_F(FleetTest, AModelOfAnotherPoolHasNoCandidatesHere) {
  add_ready(1);
  const ReplicaIndex b = add(2, "long");
  probe(b, Kind::kReady);
  fleet_.set_models(0, {{"m1"}});
  fleet_.set_models(b, {{"m2"}});
  EXPECT_THAT(candidates("m2", 0), IsEmpty());
  EXPECT_THAT(candidates("m2", 1), ElementsAre(b));
  EXPECT_THAT(candidates("m1", 0), ElementsAre(0U));
}

TEST_F(FleetTest, EqualListsCostNoTable) {
  add_ready(2);
  fleet_.set_models(0, {{"b", "a"}});
  fleet_.set_models(1, {{"a", "b"}});
  EXPECT_THAT(fleet_.view()->pools[0].by_model, IsEmpty());
  EXPECT_THAT(candidates("a"), ElementsAre(0U, 1U));
  EXPECT_EQ(fleet_.model_state("c"), ModelState::kUnknown);
}

TEST_F(FleetTest, ListsTheConfiguredReplicas) {
  add_ready(2);
  ASSERT_TRUE(fleet_.remove(url(0)).ok());
  const auto replicas = fleet_.replicas();
  ASSERT_EQ(replicas.size(), 1U);
  EXPECT_EQ(replicas[0].first, 1U);
  EXPECT_EQ(replicas[0].second->url, url(1));
}

TEST(Fleet, IsSafeFromManyThreads) {
  const SteadyClock clock;
  Fleet fleet({{"general", PoolPurpose::kGeneral}}, {}, clock);
  for (int i = 0; i < 8; ++i) {
    ReplicaSpec spec;
    spec.host = "h" + std::to_string(i);
    spec.url = "http://" + spec.host;
    ASSERT_TRUE(fleet.add(spec).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&fleet, t] {
      for (int i = 0; i < 2000; ++i) {
        const auto replica = static_cast<ReplicaIndex>((i + t) % 8);
        switch (i % 5) {
          case 0:
            fleet.probe_result(replica, {i % 3 == 0 ? Kind::kRefused : Kind::kReady, ""});
            break;
          case 1:
            fleet.request_failed(replica, RequestFailure::kServerError);
            break;
          case 2:
            fleet.request_succeeded(replica);
            break;
          case 3:
            fleet.set_models(replica, {{"m" + std::to_string(i % 3)}});
            break;
          default: {
            const std::shared_ptr<const FleetView> view = fleet.view();
            EXPECT_EQ(view->replicas.size(), 8U);
            EXPECT_LE(view->generation, fleet.generation());
            (void)fleet.model_state("m1");
            fleet.tick();
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pointsman
