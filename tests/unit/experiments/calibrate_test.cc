#include "experiments/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "policies/register.h"
#include "sim/cluster.h"
#include "sim/scenario_file.h"
#include "telemetry/access_log.h"

namespace pointsman::sim {
namespace {

// The access log that a router would have written of a simulated run.
class LogOfRun : public RunLog {
 public:
  explicit LogOfRun(Duration overhead) : overhead_(overhead) {}

  void request_finished(const FinishedRequest& request) override {
    AccessRecord record;
    // Any day will do.
    record.at = std::chrono::system_clock::time_point{} + std::chrono::hours(490'000) +
                std::chrono::duration_cast<std::chrono::system_clock::duration>(
                    request.ended.time_since_epoch() + overhead_);
    const std::string url = "http://r" + std::to_string(request.replica) + ":8000";
    record.replica = url;
    record.status = 200;
    record.tries = 1;
    record.stream = true;
    record.prompt_tokens = request.prompt_tokens;
    if (request.cached_tokens > 0) record.cached_tokens = request.cached_tokens;
    record.output_tokens = request.output_tokens;
    record.ttft = request.first_token - request.arrived + overhead_;
    record.whole = request.ended - request.arrived + overhead_;
    append_access_line(record, text);
  }

  std::string text;

 private:
  Duration overhead_;
};

class Calibrate : public testing::Test {
 protected:
  Calibrate() {
    path_ = testing::TempDir() + "calibrate-" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".log";
  }
  ~Calibrate() override { std::filesystem::remove(path_); }

  Result<Calibration> of_text(std::string_view text) {
    std::ofstream(path_, std::ios::binary) << text;
    CalibrateOptions options;
    options.jobs = 2;
    options.quick = true;
    return run_calibrate(path_, options);
  }

  Result<Calibration> of_run(const Scenario& scenario) {
    LogOfRun log(std::chrono::milliseconds(12));
    Arm arm;
    arm.policy.preset = "session_affinity";
    const RunResult result = run(scenario, arm, registry_, 7, &log);
    EXPECT_GT(result.requests, 0);
    return of_text(log.text);
  }

  static double value(const Calibration& calibration, std::string_view key) {
    for (const Record& row : calibration.report.rows) {
      if (row.text("key") == key) return row.number("value");
    }
    return std::nan("");
  }
  static bool told(const Calibration& calibration, std::string_view key) {
    for (const Record& row : calibration.report.rows) {
      if (row.text("key") == key) return *row.find("told")->as<bool>();
    }
    return false;
  }
  static double mape(const Calibration& calibration, std::string_view what) {
    for (const Record& row : calibration.report.rows) {
      if (row.text("what") == what) return row.number("mape");
    }
    return std::nan("");
  }

  const Registry registry_ = make_registry();
  std::string path_;
};

TEST_F(Calibrate, FindsTheConstantsOfAnEngineAtALowLoad) {
  Scenario scenario = *find_scenario_preset("set_a");
  scenario.replicas.resize(2);
  scenario.arrivals.rate = 0.6;
  scenario.measure.requests = 4'000;
  const EngineConfig& truth = scenario.replicas[0].engine;
  const Result<Calibration> found = of_run(scenario);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(value(*found, "engine.step_s"), truth.step_s, 0.05 * truth.step_s);
  EXPECT_NEAR(value(*found, "engine.weights_s"), truth.weights_s, 0.02 * truth.weights_s);
  EXPECT_NEAR(value(*found, "engine.token_s"), truth.token_s, 0.01 * truth.token_s);
  EXPECT_NEAR(value(*found, "engine.context_s"), truth.context_s, 0.05 * truth.context_s);
  EXPECT_NEAR(value(*found, "engine.sequence_s"), truth.sequence_s, 0.4 * truth.sequence_s);
  EXPECT_NEAR(value(*found, "engine.attention_ratio"), truth.attention_ratio,
              0.03 * truth.attention_ratio);
  EXPECT_NEAR(value(*found, "measure.overhead_s"), 0.012, 0.0005);
  for (const Record& row : found->report.rows) {
    if (row.text("model") == "constant") {
      EXPECT_TRUE(told(*found, row.text("key"))) << row.text("key");
    }
  }
  EXPECT_LT(mape(*found, "TTFT"), 0.005);
  EXPECT_LT(mape(*found, "ITL"), 0.01);
  // Where in a step a request comes is not known after many steps: a third of a step more or less.
  EXPECT_LT(mape(*found, "TTFT, log run again"), 0.12);
  EXPECT_LT(mape(*found, "ITL, log run again"), 0.01);

  const Result<LoadedScenario> pasted = load_scenario(found->scenario, "pasted", registry_);
  ASSERT_TRUE(pasted) << pasted.error().message;
  EXPECT_EQ(pasted->scenario.replicas.size(), 2U);
  EXPECT_NEAR(pasted->scenario.replicas[0].engine.token_s, truth.token_s, 0.01 * truth.token_s);
  EXPECT_NEAR(to_seconds(pasted->scenario.measure.overhead), 0.012, 0.0005);
}

TEST_F(Calibrate, UnderLoadItFindsWhatDecidesAndSaysWhatItCouldNotTell) {
  const Scenario scenario = *find_scenario_preset("ref70");
  const EngineConfig& truth = scenario.replicas[0].engine;
  const Result<Calibration> found = of_run(scenario);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(value(*found, "engine.token_s"), truth.token_s, 0.05 * truth.token_s);
  EXPECT_NEAR(value(*found, "engine.context_s"), truth.context_s, 0.2 * truth.context_s);
  // No prompt is so short that the weights decide: only the sum can be told.
  EXPECT_FALSE(told(*found, "engine.step_s"));
  EXPECT_NEAR(value(*found, "engine.step_s") + value(*found, "engine.weights_s"),
              truth.step_s + truth.weights_s, 0.03 * (truth.step_s + truth.weights_s));
  EXPECT_NE(found->scenario.find("step_s: 0.003  # not told by this log"), std::string::npos)
      << found->scenario;
  EXPECT_LT(mape(*found, "TTFT"), 0.06);
  EXPECT_LT(mape(*found, "ITL"), 0.03);
  // Most prefills met another one. One that changes places with another is far off, few do.
  EXPECT_LT(mape(*found, "TTFT, log run again"), 0.1);
  EXPECT_LT(mape(*found, "ITL, log run again"), 0.02);
}

// One request alone on an engine with t0 = 4 ms, tw = 8 ms, tc = 50 us, tkv = 60 ns, tseq = 0 and
// no attention term, behind 5 ms of overhead, by the closed form.
std::string lonely_line(int i, int stall) {
  const int prompt = 40 + i * 37 % 3'000;
  const int output = 20 + i * 11 % 150;
  const double ttft = 5 + 4 + std::max(8.0, 0.05 * prompt) + stall;
  const double steps = output - 1;
  const double decode = steps * 12 + 60e-6 * (steps * prompt + steps * (steps - 1) / 2);
  char at[64];
  std::snprintf(at, sizeof at, "2026-01-31T%02d:%02d:%02d.000Z", i / 120 % 24, i / 2 % 60,
                i % 2 * 30);
  char line[400];
  std::snprintf(line, sizeof line,
                "{\"at\":\"%s\",\"model\":\"a \\\"ttft_ms\\\":1 b\",\"replica\":\"http://a\","
                "\"status\":200,\"tries\":1,\"stream\":true,\"prompt_tokens\":%d,"
                "\"output_tokens\":%d,\"ttft_ms\":%.1f,\"whole_ms\":%.1f}\n",
                at, prompt, output, ttft, ttft + decode);
  return line;
}

TEST_F(Calibrate, AFewStalledRequestsDoNotMoveTheConstants) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += lonely_line(i, i % 25 == 0 ? 2'000 : 0);
  const Result<Calibration> found = of_text(text);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NEAR(value(*found, "engine.token_s"), 50e-6, 1e-6);
  EXPECT_NEAR(value(*found, "engine.weights_s"), 0.008, 0.0004);
  EXPECT_NEAR(value(*found, "engine.step_s"), 0.004, 0.0004);
  EXPECT_NEAR(value(*found, "engine.context_s"), 60e-9, 3e-9);
  EXPECT_NEAR(value(*found, "measure.overhead_s"), 0.005, 0.0005);
  EXPECT_FALSE(told(*found, "engine.sequence_s")) << "never two requests at once";
}

TEST_F(Calibrate, TheDecisionLogSaysTheSame) {
  std::string access;
  std::string decisions =
      "{\"pointsman_decision_log\":1,\"start\":\"2026-01-31T00:00:00.000Z\",\"block_tokens\":16}\n";
  for (int i = 0; i < 100; ++i) {
    const std::string line = lonely_line(i, 0);
    access += line;
    // There the times are those of the ends, half a minute apart.
    const std::string key = "\"whole_ms\":";
    const double whole_ms = std::stod(line.substr(line.find(key) + key.size()));
    char begin[64];
    std::snprintf(begin, sizeof begin, "{\"n\":%d,\"t\":%.6f,", i, i * 30 - whole_ms * 1e-3 + 60);
    decisions += begin + line.substr(line.find("\"model\""));
  }
  const Result<Calibration> one = of_text(access);
  const Result<Calibration> other = of_text(decisions);
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ(one->scenario, other->scenario);

  const Result<Calibration> broken = of_text(decisions + "{\"n\":100,\"status\":200}\n");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().message,
            path_ +
                ":102: is not a line of the decision log (docs/decision_log.md): it has no time "
                "\"t\"");
}

TEST_F(Calibrate, TheRoutersOwnAnswersAreNoFailedRequests) {
  const std::string models =
      R"({"at":"2026-01-31T12:34:56.789Z","client":"127.0.0.1","method":"GET","path":"/v1/models",)"
      R"("status":200,"tries":0,"stream":false,"response_bytes":150,"whole_ms":0.0})"
      "\n";
  const Result<Calibration> found = of_text(models + lonely_line(1, 0));
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("1 of 1 can be used"), std::string::npos)
      << found.error().message;
  EXPECT_EQ(found.error().message.find("failed"), std::string::npos) << found.error().message;
}

TEST_F(Calibrate, WhatIsNoAccessLogIsRefusedWithItsLine) {
  const std::string good = lonely_line(1, 0);
  const std::pair<std::string, std::string> cases[] = {
      {"", ":1: there is no request in this file"},
      {"\n \n", ":1: there is no request in this file"},
      {good + "TIMESTAMP,ContextTokens\n", ":2: is not a line of the access log"},
      {good + good + "{\"timestamp\": 1, \"input_length\": 5, \"hash_ids\": [1]}\n", ":3: "},
      {"{\"timestamp\": 1}\n",
       ":1: is not a line of the access log (docs/admin.md): it has no time"},
      {good.substr(0, good.size() / 2) + "\n", ":1: "},
      {good + good.substr(0, good.size() - 1) + "}\n", ":2: "},
      {"{\"at\":\"2026-02-30T00:00:00.000Z\",\"status\":200,\"whole_ms\":1}\n", "no time \"at\""},
  };
  for (const auto& [text, said] : cases) {
    const Result<Calibration> found = of_text(text);
    ASSERT_FALSE(found) << text;
    EXPECT_TRUE(found.error().message.starts_with(path_ + ":")) << found.error().message;
    EXPECT_NE(found.error().message.find(said), std::string::npos) << found.error().message;
  }
  EXPECT_FALSE(run_calibrate("/nowhere/access.log", {}));
  EXPECT_EQ(run_calibrate(testing::TempDir(), {}).error().message,
            testing::TempDir() + ": is a folder, not a file");
}

TEST_F(Calibrate, TooSmallALogIsRefusedAndWhatIsMissingSaid) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += lonely_line(i, 0);
  // As a stream whose client did not ask for its usage.
  std::string uncounted = lonely_line(7, 0);
  const std::string key = "\"output_tokens\":97,";
  ASSERT_NE(uncounted.find(key), std::string::npos) << uncounted;
  uncounted.erase(uncounted.find(key), key.size());
  for (int i = 0; i < 70; ++i) text += uncounted;
  const Result<Calibration> found = of_text(text);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message,
            path_ +
                ": too few requests: 30 of 100 can be used, 50 are needed; 70 without a "
                "number of tokens (clients ask a stream for that with stream_options: "
                "{include_usage: true})");
}

TEST_F(Calibrate, AnUnknownReplicaIsRefusedWithThoseThereAre) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += lonely_line(i, 0);
  std::ofstream(path_, std::ios::binary) << text;
  CalibrateOptions options;
  options.replica = "http://b";
  const Result<Calibration> found = run_calibrate(path_, options);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("http://b (there are: http://a)"), std::string::npos);
}

}  // namespace
}  // namespace pointsman::sim
