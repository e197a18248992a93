#include <cstdio>
#include <memory>
#include <string>

#include "experiments/calibrate.h"
#include "experiments/progress_bar.h"
#include "simulate_flags.h"

namespace pointsman {
namespace {

struct CalibrateFlags {
  SimulateFlags common;
  std::string log;
  sim::CalibrateOptions calibrate;
};

void calibrate(CalibrateFlags& flags) {
  check_outputs({flags.common.json, flags.common.csv});
  sim::CalibrateOptions& options = flags.calibrate;
  options.jobs = flags.common.options.jobs;
  const Result<sim::Calibration> calibration = [&] {
    sim::ProgressBar bar("calibrate");
    options.progress = [&bar](std::size_t done, std::size_t all) { bar.show(done, all); };
    return within_memory([&] { return sim::run_calibrate(flags.log, options); });
  }();
  options.progress = nullptr;
  if (!calibration) fail_simulate(calibration.error().message);
  show_report(calibration->report, flags.common);
  if (shows_text(flags.common)) std::printf("\n%s", calibration->scenario.c_str());
}

}  // namespace

void add_simulate_calibrate_command(CLI::App& simulate) {
  const auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* command = simulate.add_subcommand(
      "calibrate",
      "Fit an engine's constants to the access log or the decision log of `pointsman serve`");
  command
      ->add_option("log", flags->log,
                   "The access log (docs/admin.md), or the decision log (docs/decision_log.md)")
      ->required();
  sim::CalibrateOptions& options = flags->calibrate;
  command->add_option("--replica", options.replica, "Only requests of the replica with this URL");
  command
      ->add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                   "Tokens that the measured engines compute in one step")
      ->check(CLI::Range(16U, 10'000'000U))
      ->capture_default_str();
  command->add_option("--jobs", flags->common.options.jobs, "Threads; 0: one for each core")
      ->check(CLI::Range(0, 1'024))
      ->capture_default_str();
  command->add_flag("--quick", options.quick, "Fewer resamples for the intervals");
  add_output_flag(*command, "--json", flags->common.json, "Write all figures to this file");
  add_output_flag(*command, "--csv", flags->common.csv, "Write the rows to this file");
  command->callback([flags] { calibrate(*flags); });
}

}  // namespace pointsman
