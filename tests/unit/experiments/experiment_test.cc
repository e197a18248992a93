#include "experiments/experiment.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

class Experiments : public testing::TestWithParam<Experiment> {};

TEST_P(Experiments, SameBytesForAnyNumberOfJobs) {
  // As little as shows a schedule that matters: a single seed, two replicas more than pools need.
  ExperimentOptions options = quick_options(1);
  options.replicas = GetParam().name == "theory" ? 4'000 : 5;
  options.jobs = 1;
  const std::string one = report_json(report_of(GetParam().run, options));
  options.jobs = 4;
  EXPECT_EQ(one, report_json(report_of(GetParam().run, options)));
}

// `table` and `best` are those that take long, and run their arms by code that the others use too.
std::vector<Experiment> small_ones() {
  std::vector<Experiment> small;
  for (const Experiment& one : experiments()) {
    if (one.name != "table" && one.name != "best") small.push_back(one);
  }
  return small;
}

INSTANTIATE_TEST_SUITE_P(All, Experiments, testing::ValuesIn(small_ones()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(ScenarioFor, HasTheSizeAndTheSharingAskedFor) {
  ExperimentOptions options;
  EXPECT_EQ(scenario_for(options, "ref70").replicas.size(), 8U);
  options.replicas = 4;
  options.sharing = 0;
  const Scenario scenario = scenario_for(options, "ref70");
  EXPECT_EQ(scenario.replicas.size(), 4U);
  EXPECT_DOUBLE_EQ(scenario.arrivals.rate, 7.15 / 2);
  EXPECT_NEAR(scenario.workload.expected_turns(), 1, 1e-6);
}

}  // namespace
}  // namespace pointsman::sim
