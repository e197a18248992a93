#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "experiments/compare.h"
#include "experiments/progress_bar.h"
#include "policies/register.h"
#include "sim/scenario_keys.h"
#include "simulate_flags.h"

namespace pointsman {
namespace {

struct RunFlags {
  SimulateFlags common;
  std::string scenario;
  std::string trace;
  std::vector<std::string> policies;
  std::optional<std::uint32_t> requests;
  bool keys = false;
};

// Where a file could have named policies, and has not.
std::string place_of_arms(const std::string& scenario) {
  return sim::find_scenario_preset(scenario) ? scenario + ": " : scenario + ":1: arms: ";
}

// Policies of the command line take the place of the file's arms. They are set up for the scenario
// as their pages say; the file's are as written.
std::vector<sim::Arm> arms_of(const RunFlags& flags, const sim::Scenario& scenario,
                              std::vector<sim::Arm> arms, const Registry& registry) {
  if (!flags.policies.empty()) arms.clear();
  for (const std::string& name : flags.policies) {
    if (name.empty()) fail_simulate("--policy: a name is empty");
    sim::Arm arm = sim::configured(sim::preset_arm(name, ""), scenario);
    const auto built = registry.build(arm.policy);
    if (!built) fail_simulate(built.error().message);
    arms.push_back(std::move(arm));
  }
  sim::number_alike(arms);
  if (arms.empty()) {
    fail_simulate(place_of_arms(flags.scenario) +
                  "no policy: give --policy NAME[,NAME…], or arms in a scenario file");
  }
  return arms;
}

void run_scenario(const RunFlags& flags) {
  if (flags.keys) {
    std::fputs(sim::scenario_markdown().c_str(), stdout);
    return;
  }
  if (flags.scenario.empty())
    fail_simulate("which scenario? " + scenario_preset_names() + ", or a file");
  check_outputs({flags.common.json, flags.common.csv});
  const Registry registry = make_registry();
  sim::LoadedScenario loaded = load_scenario_argument(
      flags.scenario, registry, overrides_of(flags.common, flags.trace, flags.requests));
  const sim::Scenario* const scenario = &loaded.scenario;
  const sim::ExperimentOptions& options = flags.common.options;
  const std::vector<sim::Arm> arms = arms_of(flags, *scenario, std::move(loaded.arms), registry);

  sim::CompareOptions compare;
  compare.seeds = sim::seeds_or(options, 5, 2);
  compare.first_seed = options.first_seed;
  compare.jobs = options.jobs;
  std::vector<std::vector<sim::RunResult>> results;
  try {
    sim::ProgressBar bar("run");
    compare.progress = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
    results = within_memory([&] { return sim::run_arms(*scenario, arms, registry, compare); });
  } catch (const std::invalid_argument& error) {
    fail_simulate(error.what());
  }
  compare.progress = nullptr;

  sim::Report report;
  report.experiment = "run";
  report.title = scenario->name + ": " + sim::counted(scenario->replicas.size(), "replica") + ", " +
                 sim::counted(scenario->balancers.count, "balancer") + ", " +
                 sim::counted(static_cast<std::size_t>(compare.seeds), "seed");
  report.scenario = sim::scenario_record(*scenario);
  report.scenario.set("arms", sim::arms_value(arms));
  report.seeds = compare.seeds;
  report.first_seed = compare.first_seed;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    sim::Record row = sim::arm_row(arms[i], results[i]);
    row.set("model", "run").set("pools", sim::pools_of(row));
    report.rows.push_back(std::move(row));
  }
  report.tables.push_back({.title = "", .columns = sim::arm_columns(*scenario)});
  report.tables.push_back({.title = "", .columns = sim::engine_columns(), .again = true});
  for (const sim::Arm& arm : arms) {
    const std::string told = sim::options_text(arm);
    if (flags.policies.empty() || told.empty()) continue;
    report.notes.push_back(told +
                           " (set for the scenario's balancers, as the policy's page says; an arm "
                           "of a scenario file is run as written).");
  }
  for (std::string& note : sim::arm_notes(*scenario, arms, results))
    report.notes.push_back(std::move(note));
  if (options.sharing && scenario->arrivals.kind == sim::ArrivalKind::kTrace) {
    report.notes.emplace_back("--sharing changes nothing: a trace says itself what is shared.");
  }
  show_report(report, flags.common);
}

}  // namespace

void add_simulate_run_command(CLI::App& simulate) {
  const auto flags = std::make_shared<RunFlags>();
  CLI::App* command = simulate.add_subcommand("run", "Any scenario under any policies");
  command->add_option(
      "scenario", flags->scenario,
      "One of " + scenario_preset_names() + ", or a scenario file (docs/scenario.md)");
  command
      ->add_option("--policy", flags->policies,
                   "Policies to compare, separated by commas, in place of the file's arms")
      ->delimiter(',');
  add_trace_flag(*command, flags->trace);
  command->add_option("--requests", flags->requests, "Length of a run, in place of the scenario's")
      ->check(CLI::Range(1U, 1'000'000'000U));
  command->add_flag("--keys", flags->keys, "Print docs/scenario.md instead");
  add_simulate_flags(*command, flags->common);
  command->callback([flags] { run_scenario(*flags); });
}

}  // namespace pointsman
