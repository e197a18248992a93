#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <optional>
#include <string>

#include "core/registry.h"
#include "experiments/experiment.h"
#include "sim/scenario_file.h"

namespace pointsman {

// What all sub-commands of `simulate` take.
struct SimulateFlags {
  sim::ExperimentOptions options;
  std::string json;
  std::string csv;
  std::string config;  // of `tune`
};

// Says what went wrong and throws CLI::RuntimeError(1).
[[noreturn]] void fail_simulate(const std::string& message);

// `simulate run`: any scenario under any policies.
void add_simulate_run_command(CLI::App& simulate);

// `simulate calibrate`: an engine's constants from measured requests.
void add_simulate_calibrate_command(CLI::App& simulate);
// `simulate tune`: the configuration that suits a scenario best.
void add_simulate_tune_command(CLI::App& simulate);

// "ref70, set_a": the scenarios that are known by name.
[[nodiscard]] std::string scenario_preset_names();
// A scenario by its name, or from a file, with what the command line says in its place. Throws as
// fail_simulate() where there is none, or where the overrides make it one that cannot be run.
[[nodiscard]] sim::LoadedScenario load_scenario_argument(const std::string& name,
                                                         const Registry& registry,
                                                         const sim::ScenarioOverrides& overrides);
[[nodiscard]] sim::ScenarioOverrides overrides_of(const SimulateFlags& flags,
                                                  const std::string& trace,
                                                  std::optional<std::uint32_t> requests);

void add_simulate_flags(CLI::App& command, SimulateFlags& flags);

// The flag --trace: the requests of that file take the place of the scenario's.
void add_trace_flag(CLI::App& command, std::string& trace);

// A flag that names a file to write; "-" is standard output.
void add_output_flag(CLI::App& command, const std::string& flag, std::string& path,
                     const std::string& what);

// Before a run: fails where a file that it is to write cannot be written, or is named twice. Empty
// paths are of files that nobody asked for.
void check_outputs(std::initializer_list<std::string> paths);

// Runs `task`. Where the machine has too little memory for it, says so as fail_simulate() does.
template <typename Task>
auto within_memory(Task&& task) {
  try {
    return task();
  } catch (const std::bad_alloc&) {
    fail_simulate("out of memory: run fewer requests or replicas, or fewer --jobs at once");
  }
}

// Prints the report and writes the files that were asked for. Throws CLI::RuntimeError where one
// cannot be written.
void show_report(const sim::Report& report, const SimulateFlags& flags);
// Whether standard output is for people: no file that was asked for takes it.
[[nodiscard]] bool shows_text(const SimulateFlags& flags);
// Writes a file as show_report() does. Empty path: none.
void write_output(const std::string& path, const std::string& text);

}  // namespace pointsman
