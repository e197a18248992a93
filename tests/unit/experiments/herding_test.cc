#include "experiments/herding.h"

#include <string>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

// The row of a policy under that arm.
const Record& row(const Report& report, std::string_view policy, std::string_view arm) {
  for (const Record& one : report.rows) {
    if (one.text("policy") == policy && one.text("arm") == arm) return one;
  }
  ADD_FAILURE() << "no row " << policy << " " << arm;
  return report.rows.front();
}

double p50(const Record& row) {
  return row.number("ttft_p50_s");
}

TEST(Herding, BestOfAllHerdsAndTwoChoicesDoNot) {
  const Report report = report_of(run_herding, quick_options());
  const Record& random = row(report, "random", "L=1");

  // By the bare report all balancers send everything to one replica until the next report comes.
  const Record& step = row(report, "global_least_kv", "bare, L=4, poll 2 s in step");
  EXPECT_GT(step.number("favourite_share"), 0.98);
  EXPECT_GT(p50(step), 4 * p50(random));
  // Polls out of step spread the herd, more seconds between them make it larger.
  const Record& apart = row(report, "global_least_kv", "bare, L=4, poll 2 s");
  EXPECT_LT(apart.number("favourite_share"), 0.8);
  EXPECT_LT(p50(apart), 0.6 * p50(step));
  const Record& slow = row(report, "global_least_kv", "bare, L=4, poll 5 s in step");
  EXPECT_GT(slow.number("cv_load"), 1.4 * step.number("cv_load"));

  // Two choices do not herd with any number of balancers, nor in step.
  for (const std::string arm : {"bare, L=1, poll 2 s", "bare, L=4, poll 2 s in step",
                                "bare, L=16, poll 2 s", "bare, L=4, poll 5 s in step"}) {
    const Record& two = row(report, "least_kv", arm);
    EXPECT_LT(two.number("favourite_share"), 0.32) << arm;
    EXPECT_LT(p50(two), 1.15 * p50(random)) << arm;
    EXPECT_LT(two.number("cv_load"), 0.65 * step.number("cv_load")) << arm;
  }

  // Own sends are all sends where there is one balancer, and next to none with sixteen.
  const Record& alone = row(report, "global_least_kv", "live, L=1, poll 2 s");
  const Record& many = row(report, "global_least_kv", "live, L=16, poll 2 s");
  EXPECT_LT(alone.number("p50_over_bare"), 0.2);
  EXPECT_GT(many.number("p50_over_bare"), 0.7);
  EXPECT_GT(many.number("p50_over_two_choices"), 1.35);

  // Charges that are exchanged make many balancers one.
  const Record& told = row(report, "least_work", "L=16, exchange 0.05 s");
  EXPECT_LT(told.number("p99_over_one_balancer"), 1.2);
  EXPECT_GT(row(report, "least_work", "L=16, no exchange").number("p99_over_one_balancer"), 1.3);
}

TEST(Herding, SeriesHaveAListForEachReplica) {
  ExperimentOptions options = quick_options(1);
  options.replicas = 5;
  const Report report = report_of(run_herding, options);
  std::size_t series = 0;
  for (const Record& one : report.rows) {
    if (one.text("model") != "series") continue;
    ++series;
    const auto* loads = one.find("requests_at_replica")->as<Value::List>();
    ASSERT_NE(loads, nullptr);
    EXPECT_EQ(loads->size(), 5U);
    for (const Value& load : *loads) EXPECT_EQ(load.as<Value::List>()->size(), 150U);
  }
  EXPECT_EQ(series, 6U);
}

}  // namespace
}  // namespace pointsman::sim
