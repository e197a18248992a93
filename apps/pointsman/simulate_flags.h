#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "experiments/experiment.h"

namespace pointsman {

// What all sub-commands of `simulate` take.
struct SimulateFlags {
  sim::ExperimentOptions options;
  std::string json;
  std::string csv;
};

// `simulate run`: any scenario under any policies.
void add_simulate_run_command(CLI::App& simulate);

void add_simulate_flags(CLI::App& command, SimulateFlags& flags);

// Prints the report and writes the files that were asked for. Throws CLI::RuntimeError where one
// cannot be written.
void show_report(const sim::Report& report, const SimulateFlags& flags);

// Says what went wrong and throws CLI::RuntimeError(1).
[[noreturn]] void fail_simulate(const std::string& message);

}  // namespace pointsman
