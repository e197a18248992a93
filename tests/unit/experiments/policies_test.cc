#include "experiments/policies.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "policies/register.h"
#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

TEST(PolicyArms, HoldEveryPreset) {
  const Registry registry = make_registry();
  std::set<std::string> names;
  for (const Arm& arm : policy_arms(registry)) names.insert(arm.policy.preset);
  EXPECT_EQ(names.size(), registry.presets().size());
}

TEST(Policies, EachPairIsSeenFromBothSides) {
  const Report report = report_of(run_policies, quick_options(2));
  const std::size_t arms = policy_arms(make_registry()).size();
  ASSERT_EQ(report.rows.size(), arms + arms * (arms - 1) + 2);

  std::map<std::pair<std::string, std::string>, const Record*> pairs;
  for (const Record& row : report.rows) {
    if (row.text("model") != "pair") continue;
    const std::string arm = row.text("arm");
    const std::string name = row.text("policy") + (arm.empty() ? "" : " " + arm);
    pairs[{name, row.text("against")}] = &row;
  }
  ASSERT_EQ(pairs.size(), arms * (arms - 1));
  for (const auto& [names, row] : pairs) {
    const Record& back = *pairs.at({names.second, names.first});
    EXPECT_NEAR(row->number("p99_gain") * back.number("p99_gain"), 1, 1e-9);
    // Both are ahead in none where they are the same to the last digit.
    EXPECT_LE(row->number("better_p99_share") + back.number("better_p99_share"), 1 + 1e-9);
  }
  // Affinity finds far more of the prompts cached than round robin, in any setting.
  EXPECT_GT(pairs.at({"session_affinity", "round_robin"})->number("better_p50_share"), 0.9);
}

}  // namespace
}  // namespace pointsman::sim
