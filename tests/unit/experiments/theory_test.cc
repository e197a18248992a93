#include "experiments/theory.h"

#include <cmath>

#include <gtest/gtest.h>

#include "policies/register.h"

namespace pointsman::sim {
namespace {

ExperimentOptions small_options() {
  ExperimentOptions options;
  options.quick = true;
  options.seeds = 2;
  options.replicas = 1'000;
  options.jobs = 2;
  return options;
}

TEST(Theory, AgreesWithTheClosedFormsWithinTheNoiseOfASmallRun) {
  const Registry registry = make_registry();
  const Result<Report> report = run_theory(small_options(), registry);
  ASSERT_TRUE(report.ok());
  int markets = 0;
  double fullest[3] = {};
  for (const Record& row : report->rows) {
    const auto choices = static_cast<std::size_t>(row.number("choices"));
    if (row.text("model") == "supermarket") {
      ++markets;
      // One choice at load 0.99 has the largest spread, 3 % for a run of a thousand queues.
      EXPECT_LT(std::abs(row.number("deviation")), 0.1) << row.number("load") << " " << choices;
    } else if (row.text("model") == "bins") {
      EXPECT_NEAR(row.number("fullest"), row.number("fullest_expected"), 0.8);
      fullest[choices] = row.number("fullest");
    }
  }
  EXPECT_EQ(markets, 9);
  // At 8,192 bins two choices halve the fullest one.
  EXPECT_LT(fullest[2], 0.6 * fullest[1]);
}

TEST(Theory, SameBytesForAnyNumberOfJobs) {
  const Registry registry = make_registry();
  ExperimentOptions options = small_options();
  options.replicas = 50;
  options.jobs = 1;
  const Result<Report> one = run_theory(options, registry);
  options.jobs = 3;
  const Result<Report> three = run_theory(options, registry);
  ASSERT_TRUE(one.ok() && three.ok());
  EXPECT_EQ(report_json(*one), report_json(*three));
}

}  // namespace
}  // namespace pointsman::sim
