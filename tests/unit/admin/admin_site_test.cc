#include "admin/admin_site.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace pointsman {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class FirstPicker final : public Picker {
 public:
  std::size_t pick(Context&, std::span<const ReplicaIndex> candidates, const Ranking&,
                   std::span<ReplicaIndex> order) override {
    order[0] = candidates[0];
    return 1;
  }
};

std::vector<std::unique_ptr<Pipeline>> one_pipeline() {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  pipelines.push_back(std::make_unique<Pipeline>(std::vector<std::unique_ptr<Filter>>{}, nullptr,
                                                 std::vector<Pipeline::Weighted>{}, nullptr,
                                                 std::make_unique<FirstPicker>()));
  return pipelines;
}

class AdminSiteTest : public testing::Test {
 protected:
  AdminSiteTest()
      : router_(Router::Options{}, one_pipeline()),
        fleet_({{"general", PoolPurpose::kGeneral}}, HealthOptions{}, clock_),
        metrics_(1) {
    add("http://10.0.0.1:8000", "10.0.0.1");
    add("http://10.0.0.2:8000/base", "10.0.0.2");
    fleet_.probe_result(0, {ProbeResult::Kind::kReady, "200"});
  }

  void add(const std::string& url, const std::string& host) {
    ReplicaSpec spec;
    spec.url = url;
    spec.host = host;
    spec.port = 8000;
    spec.api_key = "k-secret";
    ASSERT_TRUE(fleet_.add(spec).ok());
  }

  AdminSite site(AdminSite::Options options = {}) {
    AdminSite::Actions actions;
    actions.add = [this](const ReplicaConfig& replica,
                         const std::string& pool) -> Result<ReplicaIndex> {
      added_ = replica;
      added_pool_ = pool;
      ReplicaSpec spec;
      spec.url = replica.url;
      spec.host = replica.url;
      return fleet_.add(spec);
    };
    actions.append_config = [](std::string& out) { out += "{\"values\":[]}"; };
    actions.config.check_url = [](std::string_view url) -> Result<void> {
      if (url.starts_with("http://") || url.find("://") == std::string_view::npos) return {};
      return Error{ErrorKind::kClient, "no http URL"};
    };
    actions.unix_time = [] { return 1'000'000.0; };
    ShownState state{.fleet = fleet_,
                     .router = router_,
                     .metrics = metrics_,
                     .scraper = nullptr,
                     .access_log = nullptr,
                     .decision_log = nullptr,
                     .ready = [this] { return ready_; },
                     .clock = clock_,
                     .version = "1.2.3"};
    return {std::move(options), std::move(actions), std::move(state)};
  }

  static HttpRequest request(std::string method, std::string path, std::string body = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.target = request.path;
    request.body = std::move(body);
    request.headers = {{"Host", "127.0.0.1:9090"}};
    if (request.method != "GET" && request.method != "HEAD") {
      request.headers.emplace_back("Content-Type", "application/json");
    }
    return request;
  }

  ManualClock clock_;
  SharedRouter router_;
  Fleet fleet_;
  ProxyMetrics metrics_;
  bool ready_ = true;
  ReplicaConfig added_;
  std::string added_pool_;
};

TEST_F(AdminSiteTest, HealthAndReadinessNeedNoKey) {
  AdminSite admin = site({.admin = true, .key = "k", .hosts = {}, .report_max_age = seconds(3)});
  EXPECT_EQ(admin.answer(request("GET", "/healthz")).status, 200);
  EXPECT_EQ(admin.answer(request("HEAD", "/readyz")).status, 200);
  ready_ = false;
  EXPECT_EQ(admin.answer(request("GET", "/healthz")).status, 200);
  EXPECT_EQ(admin.answer(request("GET", "/readyz")).status, 503);
}

TEST_F(AdminSiteTest, EverythingElseNeedsTheKeyWhereOneIsSet) {
  AdminSite admin = site({.admin = true, .key = "k", .hosts = {}, .report_max_age = seconds(3)});
  for (const char* path : {"/metrics", "/v1/replicas", "/v1/config", "/nothing"}) {
    const AdminSite::Reply reply = admin.answer(request("GET", path));
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_THAT(reply.body, HasSubstr("\"authentication_error\""));
  }
  HttpRequest with_key = request("GET", "/v1/replicas");
  with_key.headers.emplace_back("Authorization", "Bearer k");
  EXPECT_EQ(admin.answer(with_key).status, 200);
}

TEST_F(AdminSiteTest, TheObservePortOnlyObserves) {
  AdminSite observe = site({.admin = false, .key = "k", .hosts = {}, .report_max_age = seconds(3)});
  EXPECT_EQ(observe.answer(request("GET", "/metrics")).status, 200);
  EXPECT_EQ(observe.answer(request("GET", "/readyz")).status, 200);
  EXPECT_EQ(observe.answer(request("GET", "/v1/replicas")).status, 404);
  EXPECT_EQ(observe.answer(request("GET", "/v1/config")).status, 404);
  EXPECT_EQ(observe.answer(request("POST", "/v1/signals", "{}")).status, 404);
  EXPECT_EQ(observe.answer(request("DELETE", "/v1/replicas/0")).status, 404);
  EXPECT_EQ(observe.answer(request("POST", "/metrics")).status, 405);
  EXPECT_EQ(fleet_.status().size(), 2U);
}

TEST_F(AdminSiteTest, ACallThatChangesSomethingCannotComeFromAWebPage) {
  AdminSite admin = site();
  HttpRequest form = request("POST", "/v1/replicas/0/drain");
  form.headers = {{"Host", "127.0.0.1:9090"}, {"Content-Type", "text/plain"}};
  EXPECT_EQ(admin.answer(form).status, 415);
  HttpRequest rebound = request("POST", "/v1/replicas/0/drain");
  rebound.headers = {{"Host", "evil.example:9090"}, {"Content-Type", "application/json"}};
  EXPECT_EQ(admin.answer(rebound).status, 403);
  HttpRequest asked = request("OPTIONS", "/v1/replicas/0");
  const AdminSite::Reply reply = admin.answer(asked);
  EXPECT_EQ(reply.status, 405);
  for (const auto& [name, value] : reply.headers)
    EXPECT_THAT(name, Not(HasSubstr("Access-Control")));
  EXPECT_FALSE(fleet_.status(0)->draining);
}

TEST_F(AdminSiteTest, ListsReplicasWithWhyOneIsNotUsable) {
  const AdminSite::Reply reply = site().answer(request("GET", "/v1/replicas"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.content_type, "application/json");
  EXPECT_THAT(reply.body, HasSubstr("\"url\":\"http://10.0.0.1:8000\",\"pool\":\"general\""));
  EXPECT_THAT(reply.body, HasSubstr("\"usable\":true"));
  EXPECT_THAT(reply.body, HasSubstr("\"usable\":false"));
  EXPECT_THAT(reply.body, HasSubstr("\"signals\":null"));
  EXPECT_THAT(reply.body, Not(HasSubstr("k-secret")));
}

TEST_F(AdminSiteTest, AReplicaIsNamedByNumberAddressOrUrl) {
  AdminSite admin = site();
  for (const char* name : {"0", "10.0.0.1:8000", "http%3A%2F%2F10.0.0.1%3A8000"}) {
    const std::string path = std::string("/v1/replicas/") + name;
    EXPECT_THAT(admin.answer(request("GET", path)).body, HasSubstr("\"id\":0,")) << name;
  }
  EXPECT_EQ(admin.answer(request("GET", "/v1/replicas/7")).status, 404);
  EXPECT_EQ(admin.answer(request("GET", "/v1/replicas/")).status, 404);
  EXPECT_EQ(admin.answer(request("GET", "/v1/replicas/%zz")).status, 400);
  EXPECT_EQ(admin.answer(request("GET", "/v1/replicas/0/nonsense")).status, 404);
}

TEST_F(AdminSiteTest, DrainsUndrainsAndRemoves) {
  AdminSite admin = site();
  EXPECT_EQ(admin.answer(request("POST", "/v1/replicas/0/drain")).status, 200);
  EXPECT_TRUE(fleet_.status(0)->draining);
  EXPECT_EQ(admin.answer(request("POST", "/v1/replicas/0/undrain")).status, 200);
  EXPECT_FALSE(fleet_.status(0)->draining);
  EXPECT_EQ(admin.answer(request("GET", "/v1/replicas/0/drain")).status, 405);
  EXPECT_EQ(admin.answer(request("DELETE", "/v1/replicas/0")).status, 200);
  EXPECT_EQ(fleet_.status().size(), 1U);
  EXPECT_EQ(admin.answer(request("DELETE", "/v1/replicas/0")).status, 404);
}

TEST_F(AdminSiteTest, AddsAReplicaWithTheChecksOfTheFile) {
  AdminSite admin = site();
  const auto post = [&](const char* body) {
    return admin.answer(request("POST", "/v1/replicas", body));
  };
  EXPECT_EQ(post(R"({"url":"http://10.0.0.3:8000","weight":2,"pool":"general"})").status, 201);
  EXPECT_EQ(added_.weight, 2.0);
  EXPECT_EQ(added_pool_, "general");
  EXPECT_THAT(post(R"({"url":"http://a","wieght":2})").body, HasSubstr("nearest: weight"));
  EXPECT_EQ(post(R"({"url":"http://a","weight":0})").status, 400);
  EXPECT_EQ(post(R"({"url":"https://a"})").status, 400);
  EXPECT_EQ(post(R"({"weight":1})").status, 400);
  EXPECT_EQ(post("[]").status, 400);
  EXPECT_EQ(post("not json").status, 400);
  EXPECT_EQ(post(R"({"url":"http://10.0.0.3:8000"})").status, 409);
}

TEST_F(AdminSiteTest, ABareValueIsAUrlOnlyWhereItIsText) {
  AdminSite admin = site();
  for (const char* body : {"5", "true", "null", "5.5", "{\"url\":5}"}) {
    EXPECT_EQ(admin.answer(request("POST", "/v1/replicas", body)).status, 400) << body;
  }
  EXPECT_EQ(admin.answer(request("POST", "/v1/replicas", "\"http://10.0.0.4:1\"")).status, 201);
  EXPECT_EQ(fleet_.status().size(), 3U);
}

// Case D49: http is assumed, and that is said.
TEST_F(AdminSiteTest, AUrlWithoutASchemeIsAddedWithAWarning) {
  AdminSite admin = site();
  for (const char* body : {"\"127.0.0.1:1\"", R"({"url":"localhost:8123"})"}) {
    const AdminSite::Reply reply = admin.answer(request("POST", "/v1/replicas", body));
    EXPECT_EQ(reply.status, 201) << reply.body;
    EXPECT_THAT(reply.body, HasSubstr("\"warning\":\"'"));
    EXPECT_THAT(reply.body, HasSubstr("has no scheme: http:// is assumed"));
  }
}

TEST_F(AdminSiteTest, SignalsThatAreNotKnownAreNull) {
  AdminSite admin = site();
  const auto push = [&](const char* signals) {
    const std::string body =
        std::string(R"({"replica":"http://10.0.0.1:8000","timestamp":1000000,)") + R"("signals":)" +
        signals + "}";
    EXPECT_EQ(admin.answer(request("POST", "/v1/signals", body)).status, 200);
    return admin.answer(request("GET", "/v1/replicas/0")).body;
  };
  EXPECT_THAT(push(R"({"kv_usage":0.5})"),
              HasSubstr(R"("kv_capacity_tokens":null,"block_tokens":null})"));
  EXPECT_THAT(push(R"({"kv_capacity_tokens":5000,"block_tokens":16})"),
              HasSubstr(R"("kv_capacity_tokens":5000,"block_tokens":16})"));
}

// A number in quotes is text, as everywhere in JSON.
TEST_F(AdminSiteTest, AValueOfTheWrongJsonTypeIsRefused) {
  AdminSite admin = site();
  const auto post = [&](const char* body) {
    return admin.answer(request("POST", "/v1/replicas", body));
  };
  const AdminSite::Reply quoted = post(R"({"url":"http://a","weight":"2"})");
  EXPECT_EQ(quoted.status, 400);
  EXPECT_THAT(quoted.body, HasSubstr("replica.weight: is text; write it without quotes"));
  EXPECT_EQ(post(R"({"url":"http://a","api_key_upstream":"true"})").status, 400);
  EXPECT_EQ(post(R"({"url":"http://a","metrics_port":"9000"})").status, 400);
  EXPECT_EQ(post(R"({"url":"http://a","health_path":7})").status, 400);
  EXPECT_EQ(post(R"({"url":"http://a","pool":7})").status, 400);
  EXPECT_EQ(post(R"({"url":"http://a","pool":["general"]})").status, 400);
  EXPECT_EQ(fleet_.status().size(), 2U);
}

TEST_F(AdminSiteTest, WarnsOfAnApisBaseUrl) {
  const AdminSite::Reply reply =
      site().answer(request("POST", "/v1/replicas", R"({"url":"http://10.0.0.3:8000/v1"})"));
  EXPECT_EQ(reply.status, 201);
  EXPECT_THAT(reply.body, HasSubstr("\"warning\":\"'http://10.0.0.3:8000/v1' ends in /v1"));
}

std::vector<std::string>& logged() {
  static std::vector<std::string> lines;
  return lines;
}

TEST_F(AdminSiteTest, WritesDownWhatItChangesAndForWhom) {
  logged().clear();
  set_log_sink([](LogLevel, std::string_view line) { logged().emplace_back(line); });
  AdminSite admin = site();
  const auto change = [&](const char* method, const char* path, const char* body = "") {
    HttpRequest asked = request(method, path, body);
    asked.client = {asio::ip::make_address("192.0.2.7"), 5000};
    EXPECT_LT(admin.answer(asked).status, 300);
  };
  change("POST", "/v1/replicas", R"({"url":"http://10.0.0.3:8000"})");
  change("POST", "/v1/replicas/0/drain");
  change("POST", "/v1/replicas/0/undrain");
  change("DELETE", "/v1/replicas/0");
  change("GET", "/v1/replicas");
  set_log_sink(nullptr);
  constexpr const char* kBy = " by the admin port (client 192.0.2.7)";
  const std::string first = "replica http://10.0.0.1:8000 was ";
  EXPECT_THAT(logged(),
              testing::ElementsAre(std::string("replica http://10.0.0.3:8000 was added") + kBy,
                                   first + "told to drain" + kBy,
                                   first + "told to drain no more" + kBy, first + "removed" + kBy));
}

TEST_F(AdminSiteTest, NumbersAreTheShortestThatNameThem) {
  router_.with([&](Router& router) {
    Signals signals;
    signals.window = router.report_opened(0);
    signals.observed_at = clock_.now();
    signals.max_age = seconds(3);
    signals.kv_usage = 0.1F;
    router.report_applied(0, signals);
  });
  AdminSite admin = site();
  EXPECT_THAT(admin.answer(request("GET", "/v1/replicas/0")).body, HasSubstr("\"kv_usage\":0.1,"));
  EXPECT_THAT(admin.answer(request("GET", "/metrics")).body, HasSubstr("pool=\"general\"} 0.1\n"));
}

TEST_F(AdminSiteTest, TakesPushedSignals) {
  AdminSite admin = site();
  const AdminSite::Reply reply =
      admin.answer(request("POST", "/v1/signals",
                           R"({"replica":"http://10.0.0.1:8000","timestamp":999999,)"
                           R"("signals":{"kv_usage":0.25,"waiting":3}})"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  router_.with([&](const Router& router) {
    const Signals& signals = router.signals(0);
    EXPECT_EQ(signals.kv_usage, 0.25F);
    EXPECT_EQ(signals.waiting, 3.0F);
    EXPECT_EQ(signals.observed_at, clock_.now() - seconds(1));
  });
  EXPECT_EQ(admin.answer(request("POST", "/v1/signals", "{}")).status, 400);
  EXPECT_EQ(admin.answer(request("GET", "/v1/signals")).status, 405);
}

TEST_F(AdminSiteTest, MetricsShowReplicasAndLeaveOutWhatIsUnknown) {
  router_.with([&](Router& router) {
    Signals signals;
    signals.window = router.report_opened(0);
    signals.observed_at = clock_.now();
    signals.max_age = seconds(3);
    signals.kv_usage = 0.5F;
    router.report_applied(0, signals);
  });
  clock_.advance(seconds(2));
  std::string page = site().answer(request("GET", "/metrics")).body;
  constexpr const char* kKv = "pointsman_replica_kv_usage{replica=\"http://10.0.0.1:8000\"";
  EXPECT_THAT(page, HasSubstr(std::string(kKv) + ",pool=\"general\"} 0.5\n"));
  EXPECT_THAT(page, Not(HasSubstr("pointsman_replica_waiting{")));
  EXPECT_THAT(page, HasSubstr("pointsman_replica_report_age_seconds{replica=\"http://10.0.0.1:8000"
                              "\",pool=\"general\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("pointsman_decisions_total{reason=\"policy\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("pointsman_build_info{version=\"1.2.3\"} 1\n"));
  // A report past its age is unknown, never its last value.
  clock_.advance(seconds(2));
  page = site().answer(request("GET", "/metrics")).body;
  EXPECT_THAT(page, Not(HasSubstr(kKv)));
}

TEST_F(AdminSiteTest, WhatIsNotThereIsA404InOpenAisForm) {
  const AdminSite::Reply reply = site().answer(request("GET", "/v1/chat/completions"));
  EXPECT_EQ(reply.status, 404);
  EXPECT_THAT(reply.body, HasSubstr("{\"error\":{\"message\":"));
}

}  // namespace
}  // namespace pointsman
