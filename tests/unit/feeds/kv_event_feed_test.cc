#include "feeds/kv_event_feed.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/event_payload.h"
#include "support/event_publisher.h"
#include "support/feeds_fixture.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// libzmq hands messages from its threads to ours in ways that ThreadSanitizer does not see in a
// library that is not built with it.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "called_from_lib:libzmq.so\n";
}
#endif
#endif

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using test::EventPublisher;
using test::packed;
using test::packed_batch;
using test::packed_cleared;
using test::packed_removed;

// Always the first candidate.
class FirstPicker : public Picker {
 public:
  [[nodiscard]] Needs needs() const override { return {.blocks = true, .session = false}; }
  std::size_t pick(Context&, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    order[0] = candidates[0];
    return 1;
  }
};

class KvEventFeedTest : public test::FeedsFixture {
 protected:
  // A replica that serves `model`, at a port that nobody listens on.
  ReplicaIndex replica(std::uint16_t port, const std::string& model,
                       const std::function<void(ReplicaSpec&)>& change = {}) {
    const ReplicaIndex index = add(port, change);
    fleet_.set_models(index, std::vector<std::string>{model, "adapter"}, model);
    return index;
  }
  ReplicaIndex replica_of(const EventPublisher& publisher, std::uint16_t port = 1) {
    return replica(port, "base", [&](ReplicaSpec& spec) {
      spec.kv_events_port = publisher.port();
      spec.kv_replay_port = publisher.replay_port();
    });
  }

  KvEventFeed& feed(KvEventFeed::Options options = {}) {
    options.replay_timeout = milliseconds(300);
    feed_ = std::make_unique<KvEventFeed>(fleet_, router_, chain_, std::move(options));
    EXPECT_TRUE(feed_->start().ok());
    feed_->follow(fleet_.replicas());
    return *feed_;
  }

  static std::vector<std::uint32_t> tokens(std::uint64_t block) {
    std::vector<std::uint32_t> out(16);
    std::iota(out.begin(), out.end(), static_cast<std::uint32_t>(block * 100));
    return out;
  }
  static std::string stored(std::uint64_t block) {
    return packed_batch({packed({.blocks = {block}, .tokens = tokens(block)})},
                        static_cast<double>(++batches_));
  }
  static std::string removed(std::uint64_t block) {
    return packed_batch({packed_removed({block})}, static_cast<double>(++batches_));
  }

  // Blocks that the router knows to be held; 1 or 0 for one block that begins a prompt. Of trusted
  // replicas alone.
  bool holds(ReplicaIndex replica, std::uint64_t block, const std::string& world = "base") {
    const std::vector<BlockHash> chain = {chain_.extend(chain_.start(world, ""), tokens(block))};
    std::vector<EngineCaches::Match> matches;
    router_.with([&](Router& router) {
      router.engine_caches().match(chain, Reactor::steady_clock().now(), matches);
    });
    return std::ranges::any_of(matches,
                               [&](const auto& match) { return match.replica == replica; });
  }
  Trust trust(ReplicaIndex replica) {
    return router_.with([&](Router& router) { return router.engine_caches().trust(replica); });
  }
  bool eventually_trust(ReplicaIndex replica, Trust wanted) {
    return eventually([&] { return trust(replica) == wanted; });
  }
  std::uint64_t blocks(ReplicaIndex replica) {
    return router_.with([&](Router& router) { return router.engine_caches().blocks(replica); });
  }

  // How often the first publisher's connection failed so.
  std::uint64_t faults(LinkFault fault) {
    const auto status = feed_->status();
    return status.empty() ? 0 : status[0].faults[static_cast<std::size_t>(fault)];
  }
  std::string why() {
    const auto status = feed_->status();
    return status.empty() ? std::string() : status[0].why;
  }
  // A publisher where another one was.
  static EventPublisher::Options same_ports(const EventPublisher& former) {
    EventPublisher::Options same;
    same.port = former.port();
    same.replay_port = former.replay_port();
    return same;
  }

  inline static std::atomic<int> batches_{1'000};
  TokenChain chain_{7};
  std::unique_ptr<KvEventFeed> feed_;
};

TEST_F(KvEventFeedTest, ConnectsAndReplaysWhatWasBefore) {
  EventPublisher engine({});
  engine.publish(stored(1));
  engine.publish(stored(2));
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  EXPECT_TRUE(holds(a, 1) && holds(a, 2));
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(removed(1));
  engine.publish(stored(3));
  EXPECT_TRUE(eventually([&] { return holds(a, 3) && !holds(a, 1); }));
  EXPECT_TRUE(eventually([&] {
    const auto status = feed_->status();
    return status.size() == 1 && status[0].next == 4 && status[0].trust == Trust::kTrusted &&
           status[0].delay_s.has_value() && status[0].blocks == 2;
  }));
}

TEST_F(KvEventFeedTest, AGapIsReplayedWithAndWithoutATopicFrame) {
  for (const bool topic_in_replay : {true, false}) {
    EventPublisher engine({.connect = {}, .topic = "kv", .topic_in_replay = topic_in_replay});
    const ReplicaIndex a = replica_of(engine, topic_in_replay ? 1 : 2);
    feed();
    ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
    ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
    engine.publish(stored(1));
    ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
    engine.publish(removed(1), false);
    engine.publish(stored(2), false);
    engine.publish(stored(3));
    EXPECT_TRUE(eventually([&] { return holds(a, 3); }));
    EXPECT_TRUE(holds(a, 2) && !holds(a, 1));
    EXPECT_GE(engine.replays(), 2);
    feed_.reset();
    ASSERT_TRUE(fleet_.remove(fleet_.spec(a)->url).ok());
  }
}

TEST_F(KvEventFeedTest, WithoutReplayAGapIsNotTrusted) {
  EventPublisher engine({.connect = {}, .topic = {}, .replay = false});
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  EXPECT_EQ(trust(a), Trust::kNone);
  engine.publish(stored(1));
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  engine.publish(stored(2), false);
  engine.publish(stored(3));
  ASSERT_TRUE(eventually_trust(a, Trust::kGap));
  EXPECT_TRUE(eventually([&] { return blocks(a) == 1; }));
  engine.publish(packed_batch({packed_cleared()}));
  EXPECT_TRUE(eventually_trust(a, Trust::kTrusted));
}

// Nobody answers on the replay port: what comes is taken after the time-out.
TEST_F(KvEventFeedTest, AReplayThatIsNotAnsweredEnds) {
  EventPublisher engine({.connect = {}, .topic = {}, .replay = false});
  const ReplicaIndex a = replica(1, "base", [&](ReplicaSpec& spec) {
    spec.kv_events_port = engine.port();
    spec.kv_replay_port = 1;
  });
  feed();
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(stored(1));
  EXPECT_TRUE(eventually_trust(a, Trust::kTrusted));
  EXPECT_TRUE(holds(a, 1));
}

TEST_F(KvEventFeedTest, ARestartedEngineStartsAnew) {
  auto engine = std::make_unique<EventPublisher>(EventPublisher::Options{});
  const ReplicaIndex a = replica_of(*engine);
  feed();
  ASSERT_TRUE(eventually([&] { return engine->subscribed(); }));
  engine->publish(stored(1));
  engine->publish(stored(2));
  ASSERT_TRUE(eventually([&] { return holds(a, 2); }));
  EventPublisher::Options same;
  same.port = engine->port();
  same.replay_port = engine->replay_port();
  engine.reset();
  feed_->gone(a);
  EXPECT_TRUE(eventually_trust(a, Trust::kNone));
  engine = std::make_unique<EventPublisher>(same);
  engine->publish(stored(5));
  router_.with([&](Router& router) { router.forget(a); });
  feed_->forgot(a);
  EXPECT_TRUE(eventually([&] { return holds(a, 5); }));
  EXPECT_TRUE(!holds(a, 1) && !holds(a, 2));
}

TEST_F(KvEventFeedTest, AReplicaThatWasAwayAndHasNotRestartedIsBelievedAgain) {
  EventPublisher engine({});
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(stored(1));
  ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
  feed_->gone(a);
  ASSERT_TRUE(eventually_trust(a, Trust::kNone));
  router_.with([&](Router& router) { router.forget(a); });
  feed_->forgot(a);
  EXPECT_TRUE(eventually([&] { return holds(a, 1); }));
}

// ZeroMQ gives a connection up for good on which such a message has come.
TEST_F(KvEventFeedTest, AMessageOverTheLimitIsAGapAndNotTheEnd) {
  EventPublisher engine({});
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  engine.publish(stored(1));
  ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
  engine.publish(std::string(std::size_t{17} << 20, 'x'));
  ASSERT_TRUE(eventually([&] { return faults(LinkFault::kProtocol) == 1; }));
  // The replay has that message as well.
  ASSERT_TRUE(eventually(
      [&] { return trust(a) == Trust::kGap && why().starts_with("events were missed"); }));
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(packed_batch({packed_cleared()}));
  engine.publish(stored(2));
  EXPECT_TRUE(eventually([&] { return holds(a, 2); }));
  EXPECT_FALSE(holds(a, 1));
  EXPECT_EQ(faults(LinkFault::kProtocol), 1U);
}

TEST_F(KvEventFeedTest, ASocketOfAnotherKindOnThePortIsNotTheEnd) {
  auto engine = std::make_unique<EventPublisher>(EventPublisher::Options{});
  const EventPublisher::Options same = same_ports(*engine);
  engine.reset();
  void* const context = zmq_ctx_new();
  void* const other = zmq_socket(context, ZMQ_REP);
  const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(same.port);
  ASSERT_EQ(zmq_bind(other, endpoint.c_str()), 0);
  const ReplicaIndex a = replica(1, "base", [&](ReplicaSpec& spec) {
    spec.kv_events_port = same.port;
    spec.kv_replay_port = same.replay_port;
  });
  feed();
  ASSERT_TRUE(eventually([&] { return faults(LinkFault::kRefused) >= 2; }));
  EXPECT_EQ(trust(a), Trust::kNone);
  EXPECT_EQ(why(), "what listens on the port is no publisher of events");
  zmq_close(other);
  zmq_ctx_term(context);
  engine = std::make_unique<EventPublisher>(same);
  engine->publish(stored(1));
  EXPECT_TRUE(eventually([&] { return holds(a, 1); }));
}

// The replay alone would say that nothing is missing, now and ever.
TEST_F(KvEventFeedTest, AReplicaThatIsOnlyReplayedIsNotTrusted) {
  EventPublisher engine({});
  engine.publish(stored(1));
  const ReplicaIndex a = replica(1, "base", [&](ReplicaSpec& spec) {
    spec.kv_events_port = engine.replay_port();
    spec.kv_replay_port = engine.replay_port();
  });
  feed();
  EXPECT_TRUE(eventually([&] { return faults(LinkFault::kRefused) >= 2; }));
  EXPECT_EQ(trust(a), Trust::kNone);
}

TEST_F(KvEventFeedTest, ALostConnectionEndsTrustAndARestartIsNoticed) {
  auto engine = std::make_unique<EventPublisher>(EventPublisher::Options{});
  const ReplicaIndex a = replica_of(*engine);
  feed();
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  engine->publish(stored(1));
  ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
  const EventPublisher::Options same = same_ports(*engine);
  engine.reset();
  ASSERT_TRUE(eventually_trust(a, Trust::kGap));
  EXPECT_TRUE(eventually([&] { return why() == "the connection to the publisher was closed"; }));
  EXPECT_TRUE(eventually([&] { return faults(LinkFault::kClosed) == 1; }));
  engine = std::make_unique<EventPublisher>(same);
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  EXPECT_FALSE(holds(a, 1));
  EXPECT_EQ(blocks(a), 0U);
}

TEST_F(KvEventFeedTest, AConnectionOfAnEngineToUsThatIsLostEndsTrust) {
  const ReplicaIndex a = replica(8'001, "base");
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  feed(options);
  EventPublisher::Options to_us{.connect = feed_->bound_endpoint(), .topic = "kv"};
  to_us.replay = false;
  auto engine = std::make_unique<EventPublisher>(to_us);
  ASSERT_TRUE(eventually([&] { return engine->subscribed() && feed_->status().size() == 1; }));
  engine->publish(stored(1));
  ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
  engine.reset();
  ASSERT_TRUE(eventually_trust(a, Trust::kGap));
  engine = std::make_unique<EventPublisher>(to_us);
  ASSERT_TRUE(eventually([&] { return engine->subscribed(); }));
  engine->publish(stored(2));
  EXPECT_TRUE(eventually([&] { return holds(a, 2); }));
  EXPECT_FALSE(holds(a, 1));
}

// What it published before its model was known is asked for.
TEST_F(KvEventFeedTest, AnEngineThatConnectsIsHeardBeforeItsModelIsKnown) {
  EventPublisher replays({});
  const ReplicaIndex a = add(8'001, [&](ReplicaSpec& spec) {
    spec.kv_topic = "kv";
    spec.kv_replay_port = replays.replay_port();
  });
  replays.publish(stored(1));
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  feed(options);
  EventPublisher engine({.connect = feed_->bound_endpoint(), .topic = "kv", .replay = false});
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(stored(1));
  // One that is counted, to know when the first has come.
  engine.publish(packed_batch({packed_removed({9})}, 1.0, 5));
  ASSERT_TRUE(eventually([&] { return feed_->strays() == 1; }));
  fleet_.set_models(a, std::vector<std::string>{"base"}, "base");
  EXPECT_TRUE(eventually([&] { return holds(a, 1); }));
}

TEST_F(KvEventFeedTest, RanksThatAreNotConfiguredAreLeftOut) {
  const ReplicaIndex a = replica(8'001, "base");
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  feed(options);
  EventPublisher engine({.connect = feed_->bound_endpoint(), .topic = "kv", .replay = false});
  ASSERT_TRUE(eventually([&] { return engine.subscribed() && feed_->status().size() == 1; }));
  engine.publish(stored(1));
  ASSERT_TRUE(eventually([&] { return holds(a, 1); }));
  EventPublisher second({.connect = feed_->bound_endpoint(), .topic = "kv", .replay = false});
  ASSERT_TRUE(eventually([&] { return second.subscribed(); }));
  second.publish(packed_batch({packed({.blocks = {7}, .tokens = tokens(7)})}, 1.0, 5));
  EXPECT_TRUE(eventually([&] { return feed_->strays() == 1; }));
  EXPECT_EQ(trust(a), Trust::kTrusted);
  EXPECT_EQ(feed_->status().size(), 1U);
}

TEST_F(KvEventFeedTest, AReplayWithoutAnEndIsGivenUp) {
  EventPublisher engine(
      {.connect = {}, .topic = {}, .endless_replay = packed_batch({packed_removed({1})}, 1.0)});
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually([&] { return engine.replays() == 1; }));
  ASSERT_TRUE(eventually_trust(a, Trust::kReplaying));
  ASSERT_TRUE(eventually_trust(a, Trust::kGap));
  // It is tried again later, from the beginning.
  EXPECT_TRUE(eventually([&] { return engine.replays() >= 2; }));
  EXPECT_EQ(engine.asked_from(), 0U);
}

// Prompts are computed there, and the blocks that were stored are told to nobody.
TEST_F(KvEventFeedTest, AnEngineThatComputesPromptsAndTellsNothingIsNotTrusted) {
  EventPublisher engine({});
  const ReplicaIndex a = replica_of(engine);
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(std::make_unique<Pipeline>(std::vector<std::unique_ptr<Filter>>{}, nullptr,
                                                 std::vector<Pipeline::Weighted>{}, nullptr,
                                                 std::make_unique<FirstPicker>()));
  SharedRouter router(Router::Options{}, std::move(pipelines));
  KvEventFeed::Options options;
  options.replay_timeout = milliseconds(300);
  options.longest_silence = milliseconds(100);
  KvEventFeed feed(fleet_, router, chain_, options);
  ASSERT_TRUE(feed.start().ok());
  feed.follow(fleet_.replicas());
  const auto trusted = [&] {
    return router.with([&](Router& one) { return one.engine_caches().trusted(a); });
  };
  ASSERT_TRUE(eventually(trusted));

  FleetView view;
  view.replicas.resize(a + 1);
  view.replicas[a].usable = true;
  view.pools.emplace_back().usable = {a};
  const auto serve = [&](std::uint64_t prompt) {
    const std::vector<BlockHash> blocks = {prompt, prompt + 1, prompt + 2};
    Features features;
    features.prompt_tokens = 10'000;
    features.blocks = blocks;
    features.exact_blocks = 3;
    router.with([&](Router& one) {
      Decision decision = one.decide(features, view, {}, Reactor::steady_clock().now());
      one.finished(std::move(decision.charge), {}, Reactor::steady_clock().now());
    });
  };
  for (const std::uint64_t prompt : {100, 200, 300}) serve(prompt);
  ASSERT_TRUE(eventually([&] { return !trusted(); }));
  EXPECT_TRUE(eventually([&] {
    const auto status = feed.status();
    return status.size() == 1 && status[0].trust == Trust::kGap &&
           status[0].why == "prompts were computed, and no event was heard";
  }));
  // It is heard after all: nothing was missed, as the number shows.
  ASSERT_TRUE(eventually([&] { return engine.subscribed(); }));
  engine.publish(stored(1));
  EXPECT_TRUE(eventually(trusted));
}

TEST_F(KvEventFeedTest, EnginesThatConnectAreToldApartByTheirTopics) {
  const ReplicaIndex a = replica(8'001, "base");
  const ReplicaIndex b = replica(8'002, "base");
  const ReplicaIndex c =
      replica(8'003, "base", [](ReplicaSpec& spec) { spec.kv_topic = "the third"; });
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  feed(options);
  const std::string here = feed_->bound_endpoint();
  EventPublisher first({.connect = here, .topic = "kv@127.0.0.1:8001@base", .replay = false});
  EventPublisher second({.connect = here, .topic = "kv@127.0.0.1:8002@base", .replay = false});
  EventPublisher third({.connect = here, .topic = "the third", .replay = false});
  EventPublisher stranger({.connect = here, .topic = "kv@127.0.0.1@base", .replay = false});
  for (EventPublisher* engine : {&first, &second, &third, &stranger}) {
    ASSERT_TRUE(eventually([&] { return engine->subscribed(); }));
  }
  ASSERT_TRUE(eventually([&] { return feed_->status().size() == 3; }));
  first.publish(stored(1));
  second.publish(stored(2));
  third.publish(stored(3));
  EXPECT_TRUE(eventually([&] { return holds(a, 1) && holds(b, 2) && holds(c, 3); }));
  EXPECT_TRUE(!holds(a, 2) && !holds(b, 1) && !holds(a, 3));
  // Three replicas have that host: it names none of them.
  stranger.publish(stored(4));
  EXPECT_TRUE(eventually([&] { return feed_->strays() == 1; }));
}

TEST_F(KvEventFeedTest, OnlyTheWantedTopics) {
  const ReplicaIndex a = replica(8'001, "base");
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  options.topic = "kv";
  feed(options);
  EventPublisher other({.connect = feed_->bound_endpoint(), .topic = "metrics", .replay = false});
  EventPublisher engine({.connect = feed_->bound_endpoint(), .topic = "kv", .replay = false});
  ASSERT_TRUE(eventually([&] { return engine.subscribed() && other.subscribed(); }));
  ASSERT_TRUE(eventually([&] { return feed_->status().size() == 1; }));
  other.publish(stored(9));
  engine.publish(stored(1));
  EXPECT_TRUE(eventually([&] { return holds(a, 1); }));
  EXPECT_FALSE(holds(a, 9));
}

// Two ranks, each with a publisher of its own: what one clears the other keeps (case D64).
TEST_F(KvEventFeedTest, RanksAreCachesOfTheirOwn) {
  EventPublisher rank0({});
  EventPublisher::Options next;
  next.port = static_cast<std::uint16_t>(rank0.port() + 1);
  next.replay_port = static_cast<std::uint16_t>(rank0.replay_port() + 1);
  EventPublisher rank1(next);
  if (rank1.port() == 0 || rank1.replay_port() == 0) GTEST_SKIP() << "the next ports are taken";
  const ReplicaIndex a = replica_of(rank0);
  KvEventFeed::Options options;
  options.ranks = 2;
  feed(options);
  ASSERT_TRUE(eventually([&] { return rank0.subscribed() && rank1.subscribed(); }));
  rank0.publish(stored(1));
  rank1.publish(stored(1));
  ASSERT_TRUE(eventually([&] { return blocks(a) == 2; }));
  rank0.publish(packed_batch({packed_cleared()}));
  EXPECT_TRUE(eventually([&] { return blocks(a) == 1; }));
  EXPECT_TRUE(eventually_trust(a, Trust::kTrusted));
  EXPECT_TRUE(holds(a, 1));
}

TEST_F(KvEventFeedTest, TheModelsCanonicalNameIsTheWorld) {
  EventPublisher engine({});
  engine.publish(stored(1));
  const ReplicaIndex a = replica_of(engine);
  KvEventFeed::Options options;
  options.canonical_model = [](std::string_view model) -> std::string {
    return model == "base" ? "canonical" : "";
  };
  feed(options);
  EXPECT_TRUE(eventually([&] { return holds(a, 1, "canonical"); }));
  EXPECT_FALSE(holds(a, 1, "base"));
}

TEST_F(KvEventFeedTest, AnEngineWithoutACacheIsNotAskedForOne) {
  EventPublisher engine({});
  engine.publish(stored(1));
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  feed_->engine_said(a, 100, false);
  EXPECT_TRUE(eventually_trust(a, Trust::kNone));
  feed_->engine_said(a, 100, true);
  EXPECT_TRUE(eventually_trust(a, Trust::kTrusted));
}

TEST_F(KvEventFeedTest, AReplicaThatLeavesLeavesNothing) {
  EventPublisher engine({});
  engine.publish(stored(1));
  const ReplicaIndex a = replica_of(engine);
  feed();
  ASSERT_TRUE(eventually_trust(a, Trust::kTrusted));
  EXPECT_EQ(blocks(a), 1U);
  feed_->follow({});
  EXPECT_TRUE(eventually([&] { return blocks(a) == 0 && trust(a) == Trust::kNone; }));
  EXPECT_TRUE(eventually([&] { return feed_->status().empty(); }));
}

TEST_F(KvEventFeedTest, AnAddressInUseIsAnError) {
  KvEventFeed::Options options;
  options.bind = "tcp://127.0.0.1:*";
  feed(options);
  options.bind = feed_->bound_endpoint();
  KvEventFeed second(fleet_, router_, chain_, options);
  EXPECT_FALSE(second.start().ok());
}

}  // namespace
}  // namespace pointsman
