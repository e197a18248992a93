#include "experiments/segregation.h"

#include <map>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "support/experiments.h"

namespace pointsman::sim {
namespace {

using testing_support::quick_options;
using testing_support::report_of;

TEST(Segregation, ComparesEachRowWithNoPools) {
  const Report report = report_of(run_segregation, quick_options(1));
  std::map<std::string, std::size_t> rows;
  std::size_t shown = 0;
  for (const Table& table : report.tables) shown += table.rows;
  EXPECT_EQ(shown, report.rows.size());
  for (const Record& row : report.rows) {
    const std::string model = row.text("model");
    ++rows[model];
    const bool is_reference = row.text("arm") == "no pools" &&
                              (model == "pools" || row.text("policy") == "session_affinity");
    // Where every client allows much, no request is short.
    const bool has_short = row.number("stated_limit_tokens") <= 4'000;
    if (is_reference && has_short) {
      EXPECT_NEAR(row.number("short_p99_gain"), 1, 1e-12);
      EXPECT_NEAR(row.number("long_p99_price"), 1, 1e-12);
    }
    EXPECT_EQ(row.find("short_p99_gain")->is_number(), has_short);
  }
  EXPECT_EQ(rows, (std::map<std::string, std::size_t>{
                      {"share", 18}, {"pools", 6}, {"rate", 8}, {"limits", 8}}));
}

TEST(Segregation, PoolsHaveTheSizesTheirRowsName) {
  ExperimentOptions options = quick_options(1);
  options.replicas = 5;
  const Report report = report_of(run_segregation, options);
  for (const Record& row : report.rows) {
    const auto size = [&](std::string_view pool) {
      return std::to_string(static_cast<int>(row.number("replicas_" + std::string(pool))));
    };
    const std::string sizes =
        size("general") + "/" + size("long_context") + "/" + size("long_generation");
    const std::string arm = row.text("arm");
    EXPECT_EQ(sizes, arm.starts_with("pools ") ? arm.substr(6) : "5/0/0") << arm;
  }
}

TEST(Segregation, NeedsAReplicaForEveryPool) {
  ExperimentOptions options = quick_options(1);
  options.replicas = 2;
  EXPECT_THROW((void)report_of(run_segregation, options), std::runtime_error);
}

}  // namespace
}  // namespace pointsman::sim
