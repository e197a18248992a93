#include <cstdio>
#include <memory>
#include <string>

#include "commands.h"
#include "experiments/definitions.h"
#include "experiments/experiment.h"
#include "experiments/progress_bar.h"
#include "policies/register.h"
#include "simulate_flags.h"

namespace pointsman {
namespace {

void run_experiment(const sim::Experiment& experiment, SimulateFlags& flags) {
  check_outputs({flags.json, flags.csv});
  const Registry registry = make_registry();
  Result<sim::Report> report = [&] {
    sim::ProgressBar bar{std::string(experiment.name)};
    flags.options.progress = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
    return within_memory([&] { return experiment.run(flags.options, registry); });
  }();
  flags.options.progress = nullptr;
  if (!report) fail_simulate(report.error().message);
  report->first_seed = flags.options.first_seed;
  show_report(*report, flags);
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  CLI::App* simulate = app.add_subcommand(
      "simulate", "The same policies on a virtual clock against a model of the engine");
  simulate->require_subcommand(1);
  add_simulate_run_command(*simulate);
  for (const sim::Experiment& experiment : sim::experiments()) {
    const auto flags = std::make_shared<SimulateFlags>();
    CLI::App* command =
        simulate->add_subcommand(std::string(experiment.name), std::string(experiment.summary));
    add_simulate_flags(*command, *flags);
    command->callback([flags, &experiment] { run_experiment(experiment, *flags); });
  }
  add_simulate_calibrate_command(*simulate);
  add_simulate_tune_command(*simulate);
  simulate->add_subcommand("keys", "What the keys of the JSON and CSV files mean")->callback([] {
    std::fputs(sim::definitions_markdown().c_str(), stdout);
  });
}

}  // namespace pointsman
