#include "experiments/best.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

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

void expect_the_tables_to_share_out_the_rows(const Report& report) {
  std::map<std::string, std::size_t> counts;
  for (const Record& row : report.rows) ++counts[row.text("model")];
  EXPECT_EQ(counts["named"], report.tables[0].rows);
  EXPECT_EQ(counts["random"], report.tables[1].rows);
  EXPECT_EQ(counts["option"], report.tables[2].rows);
  EXPECT_EQ(counts["change"], report.tables[3].rows);
  EXPECT_EQ(counts["setting"], 4U);
}

void expect_the_default_ahead_of_affinity_and_segregation(const Report& report) {
  const std::string full = "exact index, exchange 50 ms";
  for (const char* scenario : {"set_a", "ref70"}) {
    EXPECT_GT(find(report, "named", full, scenario).number("p99_gain"), 1.15) << scenario;
    EXPECT_GT(find(report, "named", "exact index", scenario).number("p99_gain"), 1.15) << scenario;
  }
  const Record& random = find(report, "random", full);
  EXPECT_GT(random.number("p99_gain"), 1.2);
  EXPECT_GE(random.number("better_p99_share"), 0.75);
  EXPECT_GE(random.number("p50_no_loss_share"), 0.75);
}

void expect_a_cost_of_what_routers_do_not_know(const Report& report) {
  for (const char* scenario : {"set_a", "ref70"}) {
    const auto p99 = [&](const std::string& arm) {
      return find(report, "named", arm, scenario, 4).number("ttft_p99_s");
    };
    EXPECT_LT(p99("exact index, exchange 50 ms"), p99("exact index, no exchange")) << scenario;
    EXPECT_LT(p99("own index, exchange 50 ms"), p99("own index, no exchange")) << scenario;
    const auto hit = [&](const std::string& arm) {
      return find(report, "named", arm, scenario, 4).number("prefix_hit_rate");
    };
    // The home of a session is where routers that do not tell each other anything meet.
    EXPECT_GT(hit("own index, no exchange"), 1.5 * hit("own index, no exchange, no home"))
        << scenario;
    EXPECT_GT(hit("exact index, exchange 50 ms"), hit("own index, no exchange, no home") + 0.1)
        << scenario;
  }
}

void expect_a_learnt_speed_to_help_beside_a_slow_replica(const Report& report) {
  const Record& slow =
      find(report, "change", "exact index, exchange 50 ms, speeds not learnt", "ref70");
  for (const Record& row : report.rows) {
    if (row.text("change") != slow.text("change") || row.text("scenario") != "ref70") continue;
    if (row.text("arm") == "segregation") {
      EXPECT_GT(row.number("ttft_p99_s"), slow.number("ttft_p99_s"));
    }
    if (row.text("arm") == "exact index, exchange 50 ms") {
      EXPECT_LT(row.number("ttft_p99_s"), 1.1 * slow.number("ttft_p99_s"));
    }
  }
}

// One test, since each is a process of its own that would run the experiment.
TEST(Best, TheDefaultIsAheadWhereItsPageSaysSo) {
  const Report report = report_of(run_best, quick_options(4));
  expect_the_tables_to_share_out_the_rows(report);
  expect_the_default_ahead_of_affinity_and_segregation(report);
  expect_a_cost_of_what_routers_do_not_know(report);
  expect_a_learnt_speed_to_help_beside_a_slow_replica(report);
}

}  // namespace
}  // namespace pointsman::sim
