#include "feeds/health.h"

#include <mutex>
#include <set>

#include <gmock/gmock.h>

#include "base/log.h"
#include "support/feeds_fixture.h"
#include "support/no_descriptors.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using test::Served;
using ::testing::HasSubstr;

class ProberTest : public test::FeedsFixture {
 protected:
  ~ProberTest() override {
    on_thread([&] { prober_.reset(); });
  }

  void start(Prober::Options options = {.interval = milliseconds(50),
                                        .timeout = milliseconds(200)}) {
    on_thread([&] {
      prober_ = std::make_unique<Prober>(
          thread_.reactor(), resolver_, fleet_, options,
          [this](ReplicaIndex) { return TimePoint(Duration(last_byte_.load())); });
      prober_->follow(fleet_.replicas());
    });
  }
  HealthState health(ReplicaIndex replica) { return fleet_.status(replica)->health; }

  std::atomic<Duration::rep> last_byte_{0};
  std::unique_ptr<Prober> prober_;
};

TEST_F(ProberTest, ProbesAtOnceWithTheReplicasKeyOnItsPath) {
  std::mutex mutex;
  std::set<std::string> seen;
  Served served([&](const HttpRequest& request, const HttpResponse& response) {
    const std::lock_guard lock(mutex);
    seen.insert(request.method + " " + request.target + " " +
                std::string(request.header("authorization")));
    response.send(200, "", "");
  });
  const ReplicaIndex a = add(served.port(), [](ReplicaSpec& spec) {
    spec.path_prefix = "/base";
    spec.health_path = "/healthy?deep=1";
    spec.api_key = "k";
  });
  start({.interval = std::chrono::hours(1)});
  EXPECT_TRUE(eventually_usable(a));
  EXPECT_TRUE(on_thread([&] { return prober_->all_probed(); }));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(seen, std::set<std::string>{"GET /base/healthy?deep=1 Bearer k"});
}

TEST_F(ProberTest, SaysWhyAReplicaIsNotReadyAndSeesItComeUp) {
  std::atomic<bool> loading{true};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (!loading) return response.send(200, "application/json", R"({"status":"ok"})");
    response.send(503, "application/json",
                  R"({"error":{"message":"Loading model","type":"unavailable_error","code":503}})");
  });
  const ReplicaIndex a = add(served.port());
  start();
  EXPECT_TRUE(eventually([&] { return health(a).probes_failed >= 2; }));
  EXPECT_FALSE(fleet_.status(a)->usable);
  EXPECT_THAT(fleet_.status(a)->why, HasSubstr("503 Loading model"));
  loading = false;
  EXPECT_TRUE(eventually_usable(a));
}

TEST_F(ProberTest, WithoutAHealthPathTheModelListTakesItsPlace) {
  for (const int missing : {404, 405}) {
    for (const int answer : {200, 401, 403}) {
      Served served([=](const HttpRequest& request, const HttpResponse& response) {
        response.send(request.path == "/v1/models" ? answer : missing, "application/json", "{}");
      });
      const ReplicaIndex a = add(served.port());
      start();
      EXPECT_TRUE(eventually_usable(a)) << missing << " " << answer;
      on_thread([&] { prober_.reset(); });
      ASSERT_TRUE(fleet_.remove(fleet_.status(a)->spec.url).ok());
    }
  }
}

TEST_F(ProberTest, AKeyRefusedOnTheHealthPathItselfIsNotReady) {
  Served served([](const HttpRequest&, const HttpResponse& response) {
    response.send(401, "application/json", "{}");
  });
  const ReplicaIndex a = add(served.port());
  start();
  EXPECT_TRUE(eventually([&] { return health(a).probes_failed >= 3; }));
  EXPECT_FALSE(fleet_.status(a)->usable);
}

TEST_F(ProberTest, AHealthPortOfItsOwnIsAsked) {
  Served health_server(
      [](const HttpRequest&, const HttpResponse& response) { response.send(200, "", ""); });
  Served served(
      [](const HttpRequest&, const HttpResponse& response) { response.send(500, "", ""); });
  const ReplicaIndex a =
      add(served.port(), [&](ReplicaSpec& spec) { spec.health_port = health_server.port(); });
  start();
  EXPECT_TRUE(eventually_usable(a));
}

TEST_F(ProberTest, RefusedAndResetConnectionsMakeItGone) {
  std::atomic<bool> resets{false};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (resets) return response.reset();
    response.send(200, "", "");
  });
  std::atomic<int> gone{0};
  fleet_.add_listener({.gone = [&](ReplicaIndex) { ++gone; }, .forget = {}});
  const ReplicaIndex a = add(served.port());
  start();
  ASSERT_TRUE(eventually_usable(a));
  resets = true;
  EXPECT_TRUE(eventually([&] { return health(a).phase == HealthState::Phase::kGone; }));
  EXPECT_EQ(health(a).gone_for, "connection reset");
  resets = false;
  ASSERT_TRUE(eventually_usable(a));
  served.on_thread([&] { served.server().cut_all(); });
  EXPECT_TRUE(eventually([&] { return health(a).phase == HealthState::Phase::kGone; }));
  EXPECT_TRUE(eventually([&] { return health(a).gone_for == "connection refused"; }));
  EXPECT_EQ(gone, 2);
}

// Case D68: the prober tells a silent replica from one that is busy with its streams.
TEST_F(ProberTest, AProbeThatTimesOutIsAFailureOnlyWhereNothingElseCame) {
  std::atomic<bool> hangs{false};
  std::mutex mutex;
  std::vector<HttpResponse> held;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (!hangs) return response.send(200, "", "");
    const std::lock_guard lock(mutex);
    held.push_back(response);
  });
  const ReplicaIndex a = add(served.port());
  last_byte_ = (Reactor::steady_clock().now() + std::chrono::hours(1)).time_since_epoch().count();
  start({.interval = milliseconds(50), .timeout = milliseconds(60)});
  ASSERT_TRUE(eventually_usable(a));
  hangs = true;
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return held.size() >= 5;
  }));
  EXPECT_TRUE(fleet_.status(a)->usable);
  EXPECT_EQ(health(a).probes_failed, 0);
  last_byte_ = 0;
  EXPECT_TRUE(eventually([&] { return health(a).phase == HealthState::Phase::kNotReady; }));
  served.on_thread([&] { held.clear(); });
}

// What the router lacks is no replica's fault, and is told once.
TEST_F(ProberTest, ALackOfDescriptorsSaysNothingOfReplicas) {
  if (test::NoDescriptorsLeft::kBreaksTheSanitizer) GTEST_SKIP();
  static std::atomic<int> cannot_probe;
  cannot_probe = 0;
  set_log_sink([](LogLevel, std::string_view line) {
    if (line.starts_with("cannot probe replicas")) ++cannot_probe;
  });
  std::atomic<int> probes{0};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    ++probes;
    response.send(200, "", "");
  });
  const ReplicaIndex a = add(served.port());
  fleet_.probe_result(a, {ProbeResult::Kind::kReady, "200"});
  on_thread([] {});  // what the thread opens at its start is open
  {
    const test::NoDescriptorsLeft none;
    start({.interval = milliseconds(1), .timeout = std::chrono::seconds(5)});
    ASSERT_TRUE(eventually([&] { return cannot_probe > 0; }));
    // Many times the three that would take it out.
    const TimePoint end = Reactor::steady_clock().now() + milliseconds(50);
    ASSERT_TRUE(eventually([&] { return Reactor::steady_clock().now() > end; }));
    EXPECT_TRUE(fleet_.status(a)->usable);
    EXPECT_EQ(health(a).probes_failed, 0);
    EXPECT_EQ(probes, 0);
  }
  EXPECT_TRUE(eventually([&] { return probes > 0; }));
  EXPECT_EQ(cannot_probe, 1);
  set_log_sink(nullptr);
}

TEST_F(ProberTest, OneProbeAtATimeHoweverSlow) {
  std::atomic<int> at_once{0};
  std::atomic<int> most{0};
  std::atomic<int> total{0};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    most = std::max<int>(most, ++at_once);
    ++total;
    response.on_gone([&, response] { --at_once; });
  });
  add(served.port());
  start({.interval = milliseconds(1), .timeout = milliseconds(60)});
  EXPECT_TRUE(eventually([&] { return total >= 4; }));
  on_thread([&] { prober_.reset(); });
  EXPECT_EQ(most, 1);
}

TEST_F(ProberTest, ARemovedReplicaIsProbedNoMore) {
  std::atomic<int> total{0};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    ++total;
    response.send(200, "", "");
  });
  const ReplicaIndex a = add(served.port());
  start();
  ASSERT_TRUE(eventually_usable(a));
  ASSERT_TRUE(fleet_.remove(fleet_.status(a)->spec.url).ok());
  on_thread([&] { prober_->follow(fleet_.replicas()); });
  served.on_thread([] {});
  const int before = total;
  // The reactor's clockwork goes on; a probe would be due within 55 ms.
  std::promise<void> later;
  std::unique_ptr<Timer> timer;
  on_thread([&] {
    timer = std::make_unique<Timer>([&] { later.set_value(); });
    thread_.reactor().arm(*timer, milliseconds(200));
  });
  later.get_future().wait();
  EXPECT_EQ(total, before);
  on_thread([&] { timer.reset(); });
}

}  // namespace
}  // namespace pointsman
