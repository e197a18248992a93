#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "experiments/compare.h"
#include "experiments/progress_bar.h"
#include "experiments/run_parallel.h"
#include "policies/register.h"
#include "sim/scenario.h"
#include "simulate_flags.h"

namespace pointsman {
namespace {

struct RunFlags {
  SimulateFlags common;
  std::string scenario = "set_a";
  std::vector<std::string> policies;
};

std::string preset_names() {
  std::string names;
  for (const sim::ScenarioPreset& preset : sim::scenario_presets()) {
    names.append(names.empty() ? "" : ", ").append(preset.name);
  }
  return names;
}

void run_scenario(RunFlags& flags) {
  const Registry registry = make_registry();
  std::optional<sim::Scenario> scenario = sim::find_scenario_preset(flags.scenario);
  if (!scenario) {
    fail_simulate("unknown scenario '" + flags.scenario + "' (known: " + preset_names() + ")");
  }
  const sim::ExperimentOptions& options = flags.common.options;
  if (options.replicas) {
    sim::set_replicas(*scenario, static_cast<std::uint32_t>(*options.replicas));
  }
  if (options.sharing) sim::set_sharing(*scenario, *options.sharing);
  if (options.quick) scenario->measure.requests = 2'000;

  std::vector<sim::Arm> arms;
  for (const std::string& name : flags.policies) {
    sim::Arm arm;
    arm.policy.preset = name;
    const auto built = registry.build(arm.policy);
    if (!built) fail_simulate(built.error().message);
    arms.push_back(std::move(arm));
  }

  sim::CompareOptions compare;
  compare.seeds = sim::seeds_or(options, 5, 2);
  compare.first_seed = options.first_seed;
  compare.jobs = options.jobs > 0 ? options.jobs : sim::default_jobs();
  const std::vector<std::vector<sim::RunResult>> results = [&] {
    sim::ProgressBar bar("run");
    compare.progress = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
    return sim::run_arms(*scenario, arms, registry, compare);
  }();
  compare.progress = nullptr;

  sim::Report report;
  report.experiment = "run";
  report.title = scenario->name + ": " + std::to_string(scenario->replicas.size()) + " replicas, " +
                 std::to_string(scenario->balancers.count) + " balancers, " +
                 std::to_string(compare.seeds) + " seeds";
  report.scenario = sim::scenario_record(*scenario);
  report.seeds = compare.seeds;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    report.rows.push_back(sim::arm_row(arms[i], results[i]));
  }
  report.tables.push_back({.title = "", .columns = sim::arm_columns(*scenario)});
  report.notes = sim::arm_notes(arms, results);
  show_report(report, flags.common);
}

}  // namespace

void add_simulate_run_command(CLI::App& simulate) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = simulate.add_subcommand("run", "Any scenario under any policies");
  command->add_option("scenario", flags->scenario, "One of " + preset_names())->required();
  command->add_option("--policy", flags->policies, "Presets to compare, separated by commas")
      ->delimiter(',')
      ->required();
  add_simulate_flags(*command, flags->common);
  command->callback([flags] { run_scenario(*flags); });
}

}  // namespace pointsman
