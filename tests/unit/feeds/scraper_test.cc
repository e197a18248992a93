#include "feeds/scraper.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <mutex>

#include <gmock/gmock.h>

#include "base/log.h"
#include "feeds/orca_reports.h"
#include "support/feeds_fixture.h"

namespace pointsman {
namespace {

using std::chrono::milliseconds;
using test::Served;
using ::testing::HasSubstr;

std::atomic<int> g_warnings{0};

std::mutex g_mutex;
std::string g_last_warning;  // under g_mutex

void count_warnings(LogLevel level, std::string_view line) {
  if (level != LogLevel::kWarning) return;
  const std::lock_guard lock(g_mutex);
  g_last_warning = line;
  ++g_warnings;
}

std::string last_warning() {
  const std::lock_guard lock(g_mutex);
  return g_last_warning;
}

std::string file(const std::string& name) {
  std::ifstream stream(std::string(POINTSMAN_TEST_DATA "/signals/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class ScraperTest : public test::FeedsFixture {
 protected:
  ScraperTest() {
    g_warnings = 0;
    set_log_sink(&count_warnings);
  }
  ~ScraperTest() override {
    on_thread([&] { scraper_.reset(); });
    set_log_sink(nullptr);
  }

  void start(Scraper::Options options = {
                 .interval = milliseconds(50), .timeout = milliseconds(200), .own_metrics = {}}) {
    on_thread([&] {
      scraper_ = std::make_unique<Scraper>(thread_.reactor(), resolver_, fleet_, router_, options);
      scraper_->follow(fleet_.replicas());
    });
  }
  Scraper::Status status(ReplicaIndex replica) {
    return on_thread([&] { return *scraper_->status(replica); });
  }
  bool eventually_good(ReplicaIndex replica, std::uint64_t times = 1) {
    return eventually([&] { return status(replica).good >= times; });
  }

  std::unique_ptr<Scraper> scraper_;
};

// Case D28 too: the page is looked for on the server's own port.
TEST_F(ScraperTest, TellsTheRouterAndTheFleetWhatThePageSays) {
  const std::string page = file("vllm-under-load.prom");
  std::mutex mutex;
  std::string target;
  Served served([&](const HttpRequest& request, const HttpResponse& response) {
    const std::lock_guard lock(mutex);
    target = request.target + " " + std::string(request.header("authorization"));
    response.send(200, "text/plain; version=0.0.4", page);
  });
  const ReplicaIndex a = add(served.port(), [](ReplicaSpec& spec) { spec.api_key = "k"; });
  start();
  ASSERT_TRUE(eventually_good(a));
  const Signals signals = this->signals(a);
  EXPECT_EQ(signals.running, 8);
  EXPECT_EQ(signals.waiting, 4);
  EXPECT_FLOAT_EQ(signals.kv_usage, 64.0F / 127.0F);
  EXPECT_EQ(signals.kv_capacity_tokens, 4096U);
  EXPECT_EQ(signals.block_tokens, 32U);
  EXPECT_FLOAT_EQ(signals.prefix_hit_rate, 1280.0F / 12681.0F);
  EXPECT_EQ(signals.prefix_queries, 12'681);
  EXPECT_EQ(signals.prefix_hits, 1'280);
  EXPECT_EQ(signals.prefix_caching, true);
  EXPECT_TRUE(std::isnan(signals.queued_tokens));
  EXPECT_EQ(signals.max_age, milliseconds(150));
  EXPECT_TRUE(signals.fresh(signals.observed_at + milliseconds(150)));
  EXPECT_FALSE(signals.fresh(signals.observed_at + milliseconds(151)));
  EXPECT_EQ(fleet_.status(a)->engine, "vllm");
  EXPECT_EQ(status(a).problem, "");
  const std::lock_guard lock(mutex);
  EXPECT_EQ(target, "/metrics Bearer k");
}

TEST_F(ScraperTest, PathAndPortOfOnesOwn) {
  Served metrics([](const HttpRequest& request, const HttpResponse& response) {
    if (request.path != "/base/stats") return response.send(404, "", "");
    response.send(200, "text/plain", "tgi_queue_size 3\ntgi_batch_current_size 4\n");
  });
  Served served(
      [](const HttpRequest&, const HttpResponse& response) { response.send(500, "", ""); });
  const ReplicaIndex a = add(served.port(), [&](ReplicaSpec& spec) {
    spec.path_prefix = "/base";
    spec.metrics_path = "/stats";
    spec.metrics_port = metrics.port();
  });
  start();
  ASSERT_TRUE(eventually_good(a));
  EXPECT_EQ(signals(a).waiting, 3);
  EXPECT_TRUE(std::isnan(signals(a).kv_usage));
}

// Case D24: unknown with one warning, not zero.
TEST_F(ScraperTest, APageThatIsMissingOrNotUnderstoodIsUnknownWithOneWarning) {
  for (const int status_code : {404, 200}) {
    g_warnings = 0;
    std::atomic<int> asked{0};
    Served served([&](const HttpRequest&, const HttpResponse& response) {
      ++asked;
      response.send(status_code, "text/plain", "another_queue_length 0\n");
    });
    const ReplicaIndex a = add(served.port());
    start({.interval = milliseconds(1), .own_metrics = {}});
    EXPECT_TRUE(eventually([&] { return asked >= 6 && status(a).failed >= 5; }));
    EXPECT_EQ(g_warnings, 1) << status_code;
    EXPECT_EQ(signals(a).observed_at, TimePoint{});
    EXPECT_TRUE(std::isnan(signals(a).waiting));
    EXPECT_NE(status(a).problem, "");
    on_thread([&] { scraper_.reset(); });
    ASSERT_TRUE(fleet_.remove(fleet_.status(a)->spec.url).ok());
  }
}

TEST_F(ScraperTest, TheWarningGivesTheReasonOfTheUsualPath) {
  struct Page {
    int status;
    std::string text;
    const char* reason;
  };
  for (const Page& page :
       {Page{404, "", "/metrics (404)"}, Page{401, "", "/metrics (401)"},
        Page{200, "other 1\n", "/metrics (no metric of a known name on the page)"},
        Page{200, std::string(3000, '#'), "larger than"},
        Page{200, "vllm:kv_cache_usage_perc 41\n",
             "vllm:kv_cache_usage_perc is 41, which is out of its range"},
        Page{200, "vllm:kv_cache_usage_perc -1\nvllm:num_requests_waiting 3\n",
             "vllm:kv_cache_usage_perc is -1, which is out of its range"}}) {
    g_warnings = 0;
    Served served([&](const HttpRequest& request, const HttpResponse& response) {
      if (request.path != "/metrics") return response.send(403, "", "");
      response.send(page.status, "text/plain", page.text);
    });
    const ReplicaIndex a = add(served.port());
    start({.interval = milliseconds(1), .max_body = 2048, .own_metrics = {}});
    EXPECT_TRUE(eventually([] { return g_warnings == 1; })) << page.reason;
    EXPECT_THAT(last_warning(), HasSubstr(page.reason));
    // What the admin port shows is the same.
    const std::string problem = status(a).problem;
    EXPECT_THAT(last_warning(), HasSubstr(problem));
    EXPECT_NE(problem, "");
    on_thread([&] { scraper_.reset(); });
    ASSERT_TRUE(fleet_.remove(fleet_.status(a)->spec.url).ok());
  }
}

TEST_F(ScraperTest, AReplicaThatIsLoadingIsNotWarnedOf) {
  std::atomic<bool> loading{true};
  Served served([&](const HttpRequest& request, const HttpResponse& response) {
    EXPECT_EQ(request.path, "/metrics");
    if (loading) return response.send(503, "application/json", "{}");
    response.send(200, "text/plain", "llamacpp:requests_deferred 3\n");
  });
  const ReplicaIndex a = add(served.port());
  start({.interval = milliseconds(1), .own_metrics = {}});
  EXPECT_TRUE(eventually([&] { return status(a).failed >= 3; }));
  loading = false;
  EXPECT_TRUE(eventually_good(a));
  EXPECT_EQ(signals(a).waiting, 3);
  EXPECT_EQ(g_warnings, 0);
}

TEST_F(ScraperTest, TheOtherUsualPathIsTried) {
  Served served([](const HttpRequest& request, const HttpResponse& response) {
    if (request.path == "/metrics") return response.send(200, "application/json", "[]");
    EXPECT_EQ(request.path, "/prometheus/metrics");
    response.send(200, "text/plain", "trtllm_num_requests_running 2\n");
  });
  const ReplicaIndex a = add(served.port());
  start();
  ASSERT_TRUE(eventually_good(a, 3));
  EXPECT_EQ(fleet_.status(a)->engine, "trtllm");
  EXPECT_EQ(g_warnings, 0);
}

TEST_F(ScraperTest, ADeadOrHangingPageLeavesTheLastReportToGrowOld) {
  std::atomic<bool> hangs{false};
  std::mutex mutex;
  std::vector<HttpResponse> held;
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (!hangs) return response.send(200, "", "vllm:num_requests_waiting 7\n");
    const std::lock_guard lock(mutex);
    held.push_back(response);
  });
  const ReplicaIndex a = add(served.port());
  start({.interval = milliseconds(20), .timeout = milliseconds(50), .own_metrics = {}});
  ASSERT_TRUE(eventually_good(a));
  hangs = true;
  ASSERT_TRUE(eventually([&] { return status(a).failed >= 3; }));
  EXPECT_EQ(signals(a).waiting, 7);
  EXPECT_FALSE(signals(a).fresh(Reactor::steady_clock().now()));
  EXPECT_EQ(g_warnings, 0) << "its health says it";
  served.on_thread([&] { held.clear(); });
}

TEST_F(ScraperTest, SleepIsToldToTheFleetAndItsEndToo) {
  std::atomic<int> awake{0};
  Served served([&](const HttpRequest&, const HttpResponse& response) {
    if (awake == 2) return response.send(404, "", "");
    response.send(200, "",
                  "vllm:num_requests_running 0\nvllm:engine_sleep_state{sleep_state=\"awake\"} " +
                      std::to_string(awake) + "\n");
  });
  const ReplicaIndex a = add(served.port());
  fleet_.probe_result(a, {ProbeResult::Kind::kReady, "200"});
  start();
  EXPECT_TRUE(eventually([&] { return fleet_.status(a)->why == "asleep"; }));
  awake = 1;
  EXPECT_TRUE(eventually_usable(a));
  awake = 0;
  EXPECT_TRUE(eventually([&] { return !fleet_.status(a)->usable; }));
  awake = 2;
  EXPECT_TRUE(eventually_usable(a)) << "restarted without metrics: nothing says that it sleeps";
}

TEST_F(ScraperTest, WhatIsSentAfterTheQuestionIsNotInTheAnswer) {
  std::promise<HttpResponse> asked;
  Served served(
      [&](const HttpRequest&, const HttpResponse& response) { asked.set_value(response); });
  const ReplicaIndex a = add(served.port());
  start(
      {.interval = std::chrono::hours(1), .timeout = std::chrono::seconds(10), .own_metrics = {}});
  HttpResponse response = asked.get_future().get();
  const ReportWindow opened_meanwhile =
      router_.with([&](Router& router) { return router.report_opened(a); });
  served.on_thread([&] {
    response.send(200, "", "vllm:num_requests_waiting 1\n");
    response = HttpResponse();
  });
  ASSERT_TRUE(eventually_good(a));
  EXPECT_LT(signals(a).window, opened_meanwhile);
}

TEST_F(ScraperTest, AnAnswersOwnLoadReportCountsWhereThereIsNoNewerPage) {
  const ReplicaIndex a = add(1);
  OrcaReports orca(router_, std::chrono::seconds(1));
  const TimePoint now = Reactor::steady_clock().now();
  orca.report(a, "TEXT named_metrics.kv_cache_usage_perc=0.5", now);
  EXPECT_EQ(signals(a).kv_usage, 0.5F);
  EXPECT_TRUE(std::isnan(signals(a).waiting));
  orca.report(a, "TEXT named_metrics.kv_cache_usage_perc=0.9", now + milliseconds(500));
  EXPECT_EQ(signals(a).kv_usage, 0.5F) << "at most one per interval";
  orca.report(a, "nonsense", now + milliseconds(2000));
  EXPECT_EQ(signals(a).observed_at, now);
  orca.report(a, R"(JSON {"named_metrics": {"num_requests_waiting": 3}})",
              now + milliseconds(2000));
  EXPECT_EQ(signals(a).waiting, 3);
}

}  // namespace
}  // namespace pointsman
