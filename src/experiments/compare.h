#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/registry.h"
#include "experiments/record.h"
#include "experiments/report.h"
#include "experiments/statistics.h"
#include "sim/run_result.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// An arm of a preset, with options of its stages.
[[nodiscard]] Arm preset_arm(std::string_view preset, std::string_view label,
                             OptionMap options = {});

// The arm with the options that docs/concepts/least_work.md asks for before that scenario:
// `least_work` of several balancers is told their number (`routers`). An option that the arm gives
// stays. Arms that somebody has written down are run as written, and not passed through this.
[[nodiscard]] Arm configured(Arm arm, const Scenario& scenario);

// The policy's name, and the label if there is one.
[[nodiscard]] std::string arm_name(const Arm& arm);

// What is wrong with the first arm whose policy cannot be built.
[[nodiscard]] Result<void> check_arms(std::span<const Arm> arms, const Registry& registry);

// How often and with how many threads arms are run.
struct CompareOptions {
  int seeds = 1;
  std::uint64_t first_seed = 1;
  int jobs = 1;                                              // 0: one for each core
  std::function<void(std::size_t, std::size_t)> progress{};  // (runs ended, runs in all)
};

// The results of every arm, by arm and then by seed. Every arm sees the same seeds, so that two
// arms may be compared seed by seed. Throws std::invalid_argument as run() does.
[[nodiscard]] std::vector<std::vector<RunResult>> run_arms(const Scenario& scenario,
                                                           std::span<const Arm> arms,
                                                           const Registry& registry,
                                                           const CompareOptions& options);

// The row of an arm: "policy", "arm", and each measure's mean over the seeds by its key with the
// interval as "<key>_ci95". Seeds in which a quantity was not measured are left out of its mean.
[[nodiscard]] Record arm_row(const Arm& arm, std::span<const RunResult> results);

// The replicas of an arm_row() by pool: general/long context/long generation, as in "6/1/1".
[[nodiscard]] std::string pools_of(const Record& row);

// All that the arms say, for the files.
[[nodiscard]] Value arms_value(std::span<const Arm> arms);

// Arms of the same policy and label are told apart by numbers: "#1", "#2", …
void number_alike(std::vector<Arm>& arms);

// The mean ratio of a measure between two arms, above over below, paired by seed. Seeds in which
// one of them did not measure it are left out.
[[nodiscard]] Estimate measure_ratio(std::span<const RunResult> above,
                                     std::span<const RunResult> below, double RunResult::* value);

// All that a scenario says, for the files: with it and a seed the run can be repeated.
[[nodiscard]] Record scenario_record(const Scenario& scenario);

// Columns of the measures that most tables show; and of those that a second table shows of the same
// rows, with "pools" as the last.
[[nodiscard]] std::vector<Column> arm_columns(const Scenario& scenario);
[[nodiscard]] std::vector<Column> engine_columns();

// What the options of a preset's arm are, as in "least_work: routers: 4". Empty where it has none.
[[nodiscard]] std::string options_text(const Arm& arm);

// What a reader has to be told of the rows: a load above the capacity, failed requests, requests
// that were asked for and did not come, and why. `scenario` is that of all arms.
[[nodiscard]] std::vector<std::string> arm_notes(const Scenario& scenario,
                                                 std::span<const Arm> arms,
                                                 std::span<const std::vector<RunResult>> results);

}  // namespace pointsman::sim
