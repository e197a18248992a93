#include "experiments/best.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

ExperimentOptions small_options() {
  ExperimentOptions options;
  options.quick = true;
  options.seeds = 8;
  options.jobs = 2;
  return options;
}

const Record& find(const Report& report, std::string_view model, std::string_view arm,
                   std::string_view scenario = "", double balancers = 0) {
  for (const Record& row : report.rows) {
    if (row.text("model") != model || row.text("arm") != arm) continue;
    if (!scenario.empty() && row.text("scenario") != scenario) continue;
    if (balancers > 0 && row.number("balancers") != balancers) continue;
    return row;
  }
  ADD_FAILURE() << "no row " << model << " " << arm;
  return report.rows.front();
}

class Best : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Registry registry = make_registry();
    Result<Report> made = run_best(small_options(), registry);
    ASSERT_TRUE(made.ok());
    report_ = new Report(std::move(*made));
  }
  static void TearDownTestSuite() {
    delete report_;
    report_ = nullptr;
  }
  static Report* report_;
};

Report* Best::report_ = nullptr;

TEST_F(Best, TheTablesShareOutTheRowsAndSettingsAreLeft) {
  std::map<std::string, std::size_t> counts;
  for (const Record& row : report_->rows) ++counts[row.text("model")];
  EXPECT_EQ(counts["named"], report_->tables[0].rows);
  EXPECT_EQ(counts["random"], report_->tables[1].rows);
  EXPECT_EQ(counts["option"], report_->tables[2].rows);
  EXPECT_EQ(counts["change"], report_->tables[3].rows);
  EXPECT_EQ(counts["setting"], 8U);
}

TEST_F(Best, TheDefaultIsAheadOfAffinityAndSegregation) {
  const std::string full = "exact index, exchange 50 ms";
  for (const char* scenario : {"set_a", "ref70"}) {
    EXPECT_GT(find(*report_, "named", full, scenario).number("p99_gain"), 1.15) << scenario;
    EXPECT_GT(find(*report_, "named", "exact index", scenario).number("p99_gain"), 1.15)
        << scenario;
  }
  const Record& random = find(*report_, "random", full);
  EXPECT_GT(random.number("p99_gain"), 1.2);
  EXPECT_GE(random.number("better_p99_share"), 0.75);
  EXPECT_GE(random.number("p50_no_loss_share"), 0.75);
}

TEST_F(Best, WhatRoutersDoNotKnowOfEachOtherCosts) {
  for (const char* scenario : {"set_a", "ref70"}) {
    const auto p99 = [&](const std::string& arm) {
      return find(*report_, "named", arm, scenario, 4).number("ttft_p99_s");
    };
    EXPECT_LT(p99("exact index, exchange 50 ms"), p99("exact index, no exchange")) << scenario;
    EXPECT_LT(p99("own index, exchange 50 ms"), p99("own index, no exchange")) << scenario;
    const auto hit = [&](const std::string& arm) {
      return find(*report_, "named", arm, scenario, 4).number("prefix_hit_rate");
    };
    // The home of a session is where routers that do not tell each other anything meet.
    EXPECT_GT(hit("own index, no exchange"), 1.5 * hit("own index, no exchange, no home"))
        << scenario;
    EXPECT_GT(hit("exact index, exchange 50 ms"), hit("own index, no exchange, no home") + 0.1)
        << scenario;
  }
}

TEST_F(Best, ALearntSpeedHelpsWhereOneReplicaIsSlow) {
  const Record& slow =
      find(*report_, "change", "exact index, exchange 50 ms, speeds not learnt", "ref70");
  for (const Record& row : report_->rows) {
    if (row.text("change") != slow.text("change") || row.text("scenario") != "ref70") continue;
    if (row.text("arm") == "segregation") {
      EXPECT_GT(row.number("ttft_p99_s"), slow.number("ttft_p99_s"));
    }
    if (row.text("arm") == "exact index, exchange 50 ms") {
      EXPECT_LT(row.number("ttft_p99_s"), 1.1 * slow.number("ttft_p99_s"));
    }
  }
}

}  // namespace
}  // namespace pointsman::sim
