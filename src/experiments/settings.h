#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/statistics.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Arms over random settings: what the experiments `policies` and `best` share.

// How a random setting is run.
struct SettingRuns {
  std::uint64_t runs = 1;  // of each arm; its figures are their means
  std::uint32_t requests = 8'000;
  // Draws the load, as a share of what round robin completes in a closed loop, from here to here.
  // Equal ones: the load stays as draw_setting() has it.
  double low_load = 0;
  double high_load = 0;
};

// What one arm did in one setting: means over its runs, of times geometric ones.
struct SettingFigures {
  double p50 = 0;
  double p99 = 0;
  double p99_short = 0;
  double hit = 0;
  double goodput = 0;
  double over_capacity = 0;
};

struct SettingResult {
  std::uint64_t seed = 0;
  Record drawn;
  std::vector<SettingFigures> arms;
};

// Runs every arm, as configured() for it, in the setting of that seed. Of `options` it takes what
// replaces the drawn ones: replicas and sharing.
[[nodiscard]] SettingResult run_setting(std::uint64_t seed, std::span<const Arm> arms,
                                        const SettingRuns& how, const ExperimentOptions& options,
                                        const Registry& registry);

// The settings whose drawn value of that name lies in [low, high).
[[nodiscard]] std::vector<SettingResult> settings_within(std::span<const SettingResult> settings,
                                                         std::string_view drawn, double low,
                                                         double high);

// value(other) / value(own) in every setting: above 1 where arm `own` is the faster one. Settings
// in which one of them has no value above zero are left out.
[[nodiscard]] std::vector<double> gains(std::span<const SettingResult> settings, std::size_t own,
                                        std::size_t other, double SettingFigures::* value);

// How arm `own` does against `other`, p99 and p50: `<p>_gain` as the median over the settings with
// the interval of order statistics, `<p>_gain_mean` as the geometric mean, `better_<p>_share` of
// the settings, and `p50_no_loss_share`, those in which p50 is no more than 5 % worse.
void set_comparison(Record& row, std::span<const SettingResult> settings, std::size_t own,
                    std::size_t other);

// Bare means over the settings: these differ by factors, so an interval would say nothing of a
// policy. And the share of the settings in which the load was above the arm's capacity.
void set_figures(Record& row, std::span<const SettingResult> settings, std::size_t own);

// A row of model "setting": what was drawn, and what the first arms of its results, `arms`, did.
[[nodiscard]] Record setting_row(const SettingResult& setting, std::span<const Arm> arms);

}  // namespace pointsman::sim
