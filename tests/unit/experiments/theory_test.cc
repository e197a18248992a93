#include "experiments/theory.h"

#include <cmath>

#include <gtest/gtest.h>

#include "policies/register.h"
#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

TEST(Theory, AgreesWithTheClosedFormsWithinTheNoiseOfASmallRun) {
  const Report report = report_of(run_theory, quick_options(1));
  int markets = 0;
  double fullest[3] = {};
  for (const Record& row : report.rows) {
    const auto choices = static_cast<std::size_t>(row.number("choices"));
    if (row.text("model") == "supermarket") {
      ++markets;
      // One choice at load 0.99 has the largest spread, 3 % for one run.
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

TEST(Theory, RefusesSoFewQueuesThatTheClosedFormsSayNothingOfThem) {
  ExperimentOptions options = quick_options(1);
  options.replicas = 3'999;
  const Result<Report> report = run_theory(options, make_registry());
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("allowed are 4000 to 8192"), std::string::npos)
      << report.error().message;
}

}  // namespace
}  // namespace pointsman::sim
