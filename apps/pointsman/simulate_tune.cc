#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "experiments/progress_bar.h"
#include "experiments/tune.h"
#include "policies/register.h"
#include "simulate_flags.h"

namespace pointsman {
namespace {

struct TuneFlags {
  SimulateFlags common;
  std::string scenario;
  std::string trace;
  sim::TuneOptions tune;
  std::optional<std::uint32_t> requests;
};

void tune(TuneFlags& flags) {
  check_outputs({flags.common.json, flags.common.csv, flags.common.config});
  const Registry registry = make_registry();
  const sim::Scenario scenario =
      load_scenario_argument(flags.scenario, registry,
                             overrides_of(flags.common, flags.trace, flags.requests))
          .scenario;
  const sim::ExperimentOptions& options = flags.common.options;

  sim::TuneOptions& search = flags.tune;
  search.final_seeds = sim::seeds_or(options, 20, 6);
  search.search_seeds = options.quick ? 3 : 6;
  search.first_seed = options.first_seed;
  search.jobs = options.jobs;
  search.quick = options.quick;
  const Result<sim::Tuning> tuning = [&] {
    try {
      sim::ProgressBar bar("tune");
      search.progress = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
      return within_memory([&] { return sim::run_tune(scenario, search, registry); });
    } catch (const std::invalid_argument& error) {
      fail_simulate(error.what());
    }
  }();
  search.progress = nullptr;
  if (!tuning) fail_simulate(tuning.error().message);
  show_report(tuning->report, flags.common);
  if (shows_text(flags.common)) std::printf("\n%s", tuning->config.c_str());
  write_output(flags.common.config, tuning->config);
}

}  // namespace

void add_simulate_tune_command(CLI::App& simulate) {
  const auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = simulate.add_subcommand(
      "tune", "Search the configuration that suits a scenario or a trace best");
  command
      ->add_option("scenario", flags->scenario,
                   "One of " + scenario_preset_names() + ", or a scenario file (docs/scenario.md)")
      ->required();
  add_trace_flag(*command, flags->trace);
  command
      ->add_option("--measure", flags->tune.measure,
                   "The time to make less, by its key in the JSON file")
      ->capture_default_str();
  command->add_option("--requests", flags->requests, "Length of a run, in place of the scenario's")
      ->check(CLI::Range(1U, 1'000'000'000U));
  add_output_flag(*command, "--config", flags->common.config,
                  "Write the configuration to this file as well");
  add_simulate_flags(*command, flags->common);
  command->callback([flags] { tune(*flags); });
}

}  // namespace pointsman
