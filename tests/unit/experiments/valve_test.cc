#include "experiments/valve.h"

#include <string>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

const Record& row(const Report& report, std::string_view setting, std::string_view arm) {
  for (const Record& one : report.rows) {
    if (one.text("setting") == setting && one.text("arm") == arm) return one;
  }
  ADD_FAILURE() << "no row " << setting << " " << arm;
  return report.rows.front();
}

double hit(const Record& row) {
  return row.number("prefix_hit_rate");
}

TEST(Valve, MattersWhereCachesBindAndThenBothEndsAreBad) {
  const Report report = report_of(run_valve, quick_options());

  // Caches that are never full open no valve at any limit.
  const Record& slack = row(report, "slack", "KV 0.50");
  EXPECT_LT(slack.number("valve_share"), 0.01);
  EXPECT_NEAR(slack.number("p99_over_off"), 1, 0.15);
  EXPECT_NEAR(hit(slack), hit(row(report, "slack", "off")), 0.01);

  // Where they bind, a valve at 0.9 takes most of p99 away, and costs few hits if any. At 0.5 it is
  // open so often that conversations find nothing cached wherever they go.
  const Record& never = row(report, "kv_bound", "off");
  const Record& late = row(report, "kv_bound", "KV 0.90");
  const Record& early = row(report, "kv_bound", "KV 0.50");
  EXPECT_LT(late.number("p99_over_off"), 0.7);
  EXPECT_GT(hit(late), hit(never) - 0.1);
  EXPECT_LT(hit(early), 0.4 * hit(late));
  EXPECT_GT(early.number("ttft_p50_s"), 1.6 * late.number("ttft_p50_s"));
  EXPECT_GT(never.number("preemptions"), 2 * late.number("preemptions"));

  // The less room, the fewer hits, whatever the valve.
  EXPECT_LT(hit(late), hit(row(report, "middle", "KV 0.90")));
  EXPECT_LT(hit(row(report, "middle", "KV 0.90")), hit(row(report, "slack", "KV 0.90")));
  // Queue and outstanding prefill see what KV use does not.
  EXPECT_LT(row(report, "slack", "as shipped").number("p99_over_off"), 1);
}

}  // namespace
}  // namespace pointsman::sim
