#include "feeds/models.h"

#include <gmock/gmock.h>

#include "feeds/feeds.h"
#include "support/feeds_fixture.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using test::Served;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ModelsFeedTest : public test::FeedsFixture {
 protected:
  ~ModelsFeedTest() override {
    on_thread([&] { feed_.reset(); });
  }

  void start(const ModelsFeed::Options& options = {}) {
    on_thread([&] {
      feed_ = std::make_unique<ModelsFeed>(thread_.reactor(), resolver_, fleet_, options);
      feed_->follow(fleet_.replicas());
      feed_->tick();
    });
  }
  void make_ready(ReplicaIndex replica) {
    fleet_.probe_result(replica, {ProbeResult::Kind::kReady, "200"});
  }
  void refresh() {
    std::promise<void> done;
    feed_->refresh(thread_.reactor(), [&] { done.set_value(); });
    done.get_future().wait();
  }
  std::string merged() {
    std::string out;
    feed_->append_merged(out);
    return out;
  }

  std::unique_ptr<ModelsFeed> feed_;
};

// Case D55: c gives its list only to those with the key, and serves all the same.
TEST_F(ModelsFeedTest, TellsTheFleetWhoServesWhat) {
  Served served_a([](const HttpRequest& request, const HttpResponse& response) {
    EXPECT_EQ(request.path, "/v1/models");
    response.send(200, "application/json", R"({"data":[{"id":"m1"}]})");
  });
  Served served_c([](const HttpRequest& request, const HttpResponse& response) {
    if (request.header("authorization") != "Bearer key") return response.send(401, "", "");
    response.send(200, "application/json", R"({"data":[{"id":"m2"}]})");
  });
  const ReplicaIndex a = add(served_a.port());
  const ReplicaIndex c = add(served_c.port());
  make_ready(a);
  make_ready(c);
  start();
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->has_model_list; }));
  refresh();
  EXPECT_THAT(fleet_.status(a)->models, ElementsAre("m1"));
  EXPECT_FALSE(fleet_.status(c)->has_model_list);
  EXPECT_TRUE(fleet_.status(c)->usable);
  EXPECT_EQ(fleet_.model_state("other"), ModelState::kServed) << "c may serve it";
  EXPECT_EQ(merged(), R"({"object":"list","data":[{"id":"m1"}]})");

  on_thread([&] { feed_.reset(); });
  ASSERT_TRUE(fleet_.remove(fleet_.status(c)->spec.url).ok());
  const ReplicaIndex keyed = add(served_c.port(), [](ReplicaSpec& spec) { spec.api_key = "key"; });
  make_ready(keyed);
  start();
  EXPECT_TRUE(eventually([&] { return fleet_.status(keyed)->has_model_list; }));
  EXPECT_EQ(fleet_.model_state("other"), ModelState::kUnknown);
}

TEST_F(ModelsFeedTest, AnUnreadyReplicaIsAskedOnceItIsReady) {
  std::atomic<int> asked{0};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    ++asked;
    response.send(200, "application/json", R"({"data":[{"id":"m1"}]})");
  });
  const ReplicaIndex a = add(served.port());
  start();
  on_thread([&] { feed_->tick(); });
  EXPECT_EQ(asked, 0);
  make_ready(a);
  on_thread([&] { feed_->tick(); });
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->has_model_list; }));
  on_thread([&] { feed_->tick(); });
  EXPECT_EQ(asked, 1) << "again only after a minute";
}

TEST_F(ModelsFeedTest, AsksAgainForAnUnknownModelAtMostOnceASecond) {
  std::atomic<int> asked{0};
  std::atomic<bool> loaded{false};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    ++asked;
    response.send(200, "application/json",
                  loaded ? R"({"data":[{"id":"m1"},{"id":"new"}]})" : R"({"data":[{"id":"m1"}]})");
  });
  const ReplicaIndex a = add(served.port());
  make_ready(a);
  start();
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->has_model_list; }));
  EXPECT_EQ(fleet_.model_state("new"), ModelState::kUnknown);
  loaded = true;
  refresh();
  EXPECT_EQ(fleet_.model_state("new"), ModelState::kServed);
  const int before = asked;
  for (int i = 0; i < 20; ++i) refresh();
  EXPECT_EQ(asked, before);
}

TEST_F(ModelsFeedTest, CallersThatComeMeanwhileWaitForTheSameAnswer) {
  std::atomic<int> asked{0};
  std::promise<HttpResponse> second;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (++asked == 2) return second.set_value(response);
    response.send(200, "application/json", R"({"data":[{"id":"m1"}]})");
  });
  const ReplicaIndex a = add(served.port());
  make_ready(a);
  start();
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->has_model_list; }));
  std::atomic<int> done{0};
  for (int i = 0; i < 5; ++i) feed_->refresh(thread_.reactor(), [&] { ++done; });
  HttpResponse response = second.get_future().get();
  on_thread([] {});
  EXPECT_EQ(done, 0);
  served.on_thread([&] {
    response.send(200, "application/json", R"({"data":[]})");
    response = HttpResponse();
  });
  EXPECT_TRUE(eventually([&] { return done == 5; }));
  EXPECT_EQ(asked, 2);
}

TEST_F(ModelsFeedTest, ASilentReplicaKeepsItsLastListAndDelaysNobodyForLong) {
  std::atomic<bool> silent{false};
  std::vector<HttpResponse> held;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (!silent) return response.send(200, "application/json", R"({"data":[{"id":"m1"}]})");
    held.push_back(response);
  });
  const ReplicaIndex a = add(served.port());
  make_ready(a);
  start({.timeout = milliseconds(60)});
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->has_model_list; }));
  silent = true;
  refresh();
  EXPECT_THAT(fleet_.status(a)->models, ElementsAre("m1"));
  served.on_thread([&] { held.clear(); });
}

TEST_F(ModelsFeedTest, WithNoReplicasTheListIsEmptyAndNobodyWaits) {
  start();
  refresh();
  EXPECT_EQ(merged(), R"({"object":"list","data":[]})");
}

// --- all feeds together ---

class FeedsTest : public test::FeedsFixture {
 protected:
  ~FeedsTest() override {
    on_thread([&] { feeds_.reset(); });
  }
  void start() {
    on_thread([&] {
      feeds_ = std::make_unique<Feeds>(thread_.reactor(), resolver_, fleet_, router_,
                                       Feeds::Options{}, Prober::LastByte());
    });
  }
  // How long when_probed() takes.
  Duration probed_after() {
    std::promise<void> probed;
    const TimePoint begin = Reactor::steady_clock().now();
    on_thread([&] { feeds_->when_probed(std::chrono::seconds(1), [&] { probed.set_value(); }); });
    probed.get_future().wait();
    return Reactor::steady_clock().now() - begin;
  }

  std::unique_ptr<Feeds> feeds_;
};

TEST_F(FeedsTest, FollowTheFleetAndSayWhenAllWereProbed) {
  const auto engine = [](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/health") return response.send(200, "", "");
    if (request.path == "/metrics") return response.send(200, "", "vllm:num_requests_waiting 2\n");
    response.send(200, "application/json", R"({"data":[{"id":"m1"}]})");
  };
  Served first(engine);
  Served second(engine);
  const ReplicaIndex a = add(first.port());
  start();
  EXPECT_LT(probed_after(), milliseconds(900));
  EXPECT_TRUE(fleet_.status(a)->usable);
  const ReplicaIndex b = add(second.port());
  EXPECT_TRUE(eventually_usable(b));
  for (const ReplicaIndex replica : {a, b}) {
    EXPECT_TRUE(eventually([&] { return fleet_.status(replica)->has_model_list; }));
    EXPECT_TRUE(eventually([&] { return signals(replica).waiting == 2; }));
  }
}

// Case D66: what hangs in the background holds nothing up.
TEST_F(FeedsTest, AHangingReplicaHoldsTheStartUpForASecondAndNobodyElse) {
  std::vector<HttpResponse> held;
  Served hangs([&](const HttpRequest&, const HttpResponse& response) { held.push_back(response); });
  Served works([](const HttpRequest&, const HttpResponse& response) {
    response.send(200, "application/json", "{}");
  });
  const ReplicaIndex a = add(hangs.port());
  const ReplicaIndex b = add(works.port());
  start();
  EXPECT_TRUE(eventually_usable(b));
  const Duration waited = probed_after();
  EXPECT_GE(waited, milliseconds(1000));
  EXPECT_LT(waited, milliseconds(3000));
  EXPECT_FALSE(fleet_.status(a)->usable);
  EXPECT_TRUE(fleet_.any_usable());
  hangs.on_thread([&] { held.clear(); });
}

}  // namespace
}  // namespace pointsman
