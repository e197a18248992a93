#include "experiments/table.h"

#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

const Record* find_row(const Report& report, std::string_view policy, std::string_view arm) {
  for (const Record& row : report.rows) {
    if (row.text("model") == "policy" && row.text("policy") == policy && row.text("arm") == arm) {
      return &row;
    }
  }
  return nullptr;
}

std::size_t count_checks(const Report& report) {
  std::size_t count = 0;
  for (const Record& row : report.rows) count += row.text("model") == "check" ? 1 : 0;
  return count;
}

void expect_the_published_cells(const Report& report) {
  struct Printed {
    std::string_view policy;
    std::string_view arm;
    double p50_s, p99_s, hit, throughput;
  };
  const Printed printed[] = {
      {"round_robin", "", 0.680, 8.4, 0.12, 1.00},
      {"least_connections", "", 0.520, 4.1, 0.12, 1.09},
      {"least_kv", "live", 0.410, 2.2, 0.13, 1.18},
      {"session_affinity", "kv-valve", 0.240, 2.4, 0.71, 1.42},
      {"session_affinity", "segregation", 0.230, 1.1, 0.71, 1.51},
  };
  for (std::size_t i = 0; i < std::size(printed); ++i) {
    const Printed& one = printed[i];
    const Record& row = report.rows[i];
    EXPECT_EQ(row.text("policy"), one.policy);
    EXPECT_EQ(row.text("arm"), one.arm);
    EXPECT_EQ(row.number("published_ttft_p50_s"), one.p50_s);
    EXPECT_EQ(row.number("published_ttft_p99_s"), one.p99_s);
    EXPECT_EQ(row.number("published_prefix_hit_rate"), one.hit);
    EXPECT_EQ(row.number("published_throughput"), one.throughput);
    EXPECT_NEAR(row.number("ttft_p99_s_deviation"), row.number("ttft_p99_s") / one.p99_s - 1,
                1e-12);
  }
  for (const std::string_view arm : {"polled-1.5s", "polled-3s"}) {
    ASSERT_NE(find_row(report, "least_kv", arm), nullptr);
    EXPECT_EQ(find_row(report, "least_kv", arm)->find("published_ttft_p50_s"), nullptr);
  }
  for (const std::string_view policy : {"prefix_aware", "weighted", "least_work"}) {
    EXPECT_NE(find_row(report, policy, ""), nullptr) << policy;
  }
  EXPECT_EQ(find_row(report, "least_work", "one-balancer")->number("balancers"), 1);
  EXPECT_EQ(find_row(report, "least_work", "")->number("balancers"), 4);
  EXPECT_EQ(find_row(report, "least_kv", "live")->number("poll_s"), 0);
  EXPECT_EQ(find_row(report, "session_affinity", "segregation")->text("pools"), "6/1/1");
  EXPECT_EQ(find_row(report, "round_robin", "")->number("goodput_ratio"), 1);
  EXPECT_EQ(count_checks(report), 9U);
}

void expect_no_hit_rate_above_its_bound(const Report& report) {
  std::set<double> sharings;
  for (const Record& row : report.rows) {
    if (row.find("prefix_hit_bound") == nullptr) continue;
    EXPECT_LE(row.number("prefix_hit_rate"), row.number("prefix_hit_bound"));
    if (row.text("model") != "sharing") continue;
    sharings.insert(row.number("sharing"));
    if (row.number("sharing") == 0) {
      EXPECT_EQ(row.number("prefix_hit_rate"), 0);
    }
  }
  EXPECT_EQ(sharings, (std::set<double>{0, 0.3, 0.6, 0.9}));
}

// One test, since each is a process of its own that would run the experiment.
TEST(PublishedTable, StandsBesideTheFirstFiveRows) {
  const Report report = report_of(run_table, quick_options(1));
  expect_the_published_cells(report);
  expect_no_hit_rate_above_its_bound(report);
}

TEST(PublishedTable, IsNotComparedWithAnotherFleet) {
  ExperimentOptions options = quick_options(1);
  options.replicas = 4;
  const Report report = report_of(run_table, options);
  for (const Record& row : report.rows) {
    EXPECT_EQ(row.find("published_ttft_p99_s"), nullptr);
    EXPECT_EQ(row.find("ttft_p99_s_deviation"), nullptr);
  }
  EXPECT_EQ(count_checks(report), 4U);
}

}  // namespace
}  // namespace pointsman::sim
