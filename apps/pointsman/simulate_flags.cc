#include "simulate_flags.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/stat.h>

#include "base/printable.h"
#include "number_range.h"

namespace pointsman {
namespace {

// Far below where numbers that are added to seeds would pass the end.
constexpr std::uint64_t kMostSeed = 1'000'000'000'000;
constexpr std::string_view kStandardOutput = "-";

// Fails at once where the file could not be written after the run. Leaves all as it is.
void check_writable(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return;
  struct stat found{};
  const bool is_there = ::stat(path.c_str(), &found) == 0;
  errno = 0;
  std::FILE* const file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) {
    fail_simulate("cannot write " + path + ": " + std::generic_category().message(errno));
  }
  std::fclose(file);
  if (!is_there) std::remove(path.c_str());
}

}  // namespace

std::string scenario_preset_names() {
  std::string names;
  for (const sim::ScenarioPreset& preset : sim::scenario_presets()) {
    names.append(names.empty() ? "" : ", ").append(preset.name);
  }
  return names;
}

sim::ScenarioOverrides overrides_of(const SimulateFlags& flags, const std::string& trace,
                                    std::optional<std::uint32_t> requests) {
  const sim::ExperimentOptions& options = flags.options;
  sim::ScenarioOverrides overrides;
  if (options.replicas) overrides.replicas = static_cast<std::uint32_t>(*options.replicas);
  overrides.sharing = options.sharing;
  overrides.quick = options.quick;
  overrides.requests = requests;
  overrides.trace = trace;
  return overrides;
}

sim::LoadedScenario load_scenario_argument(const std::string& name, const Registry& registry,
                                           const sim::ScenarioOverrides& overrides) {
  if (std::optional<sim::Scenario> preset = sim::find_scenario_preset(name)) {
    sim::apply_overrides(*preset, overrides);
    return {std::move(*preset), {}};
  }
  if (name.find_first_of("./") == std::string::npos) {
    fail_simulate("unknown scenario '" + name + "' (known: " + scenario_preset_names() +
                  "; or the path of a file, which has a . or a /)");
  }
  Result<sim::LoadedScenario> loaded = sim::load_scenario_file(name, registry, overrides);
  if (!loaded) fail_simulate(loaded.error().message);
  return std::move(*loaded);
}

void add_simulate_flags(CLI::App& command, SimulateFlags& flags) {
  sim::ExperimentOptions& options = flags.options;
  command.add_option("--seeds", options.seeds, "Runs of each row; 0: as many as its page used")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  command.add_option("--first-seed", options.first_seed, "The first run's seed, the rest follow")
      ->check(CLI::Range(std::uint64_t{0}, kMostSeed))
      ->capture_default_str();
  command.add_option("--jobs", options.jobs, "Threads; 0: one for each core")
      ->check(CLI::Range(0, 1'024))
      ->capture_default_str();
  command
      .add_option("--replicas", options.replicas,
                  "Replicas of the fleet; the rate of arrivals grows with them")
      ->check(CLI::Range(1, static_cast<int>(kMaxReplicas)));
  command
      .add_option("--sharing", options.sharing,
                  "Share of requests that are follow-up turns of a conversation (not of a trace)")
      ->check(number_range(0.0, 0.99));
  command.add_flag("--quick", options.quick,
                   "A small version: a look, not a result, of short runs that begin with an empty "
                   "fleet");
  add_output_flag(command, "--json", flags.json, "Write all figures to this file");
  add_output_flag(command, "--csv", flags.csv, "Write the rows to this file");
}

void add_trace_flag(CLI::App& command, std::string& trace) {
  command
      .add_option("--trace", trace,
                  "Requests of this file in place of the scenario's: a trace or a decision log "
                  "(docs/scenario.md, arrivals.trace)")
      ->check([](const std::string& path) -> std::string {
        std::error_code unknown;
        const std::filesystem::file_status found = std::filesystem::status(path, unknown);
        if (std::filesystem::is_regular_file(found)) return {};
        return path +
               (std::filesystem::exists(found) ? " must be a regular file" : ": no such file");
      });
}

void add_output_flag(CLI::App& command, const std::string& flag, std::string& path,
                     const std::string& what) {
  command.add_option(flag, path, what + "; -: to standard output, in place of what is shown there")
      ->check([](const std::string& given) -> std::string {
        return given.empty() ? "names no file" : "";
      });
}

void check_outputs(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    check_writable(path);
    if (!path.empty() && std::count(paths.begin(), paths.end(), path) > 1) {
      fail_simulate(path + " is named for two files");
    }
  }
}

bool shows_text(const SimulateFlags& flags) {
  for (const std::string& path : {flags.json, flags.csv, flags.config}) {
    if (path == kStandardOutput) return false;
  }
  return true;
}

void write_output(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  if (path == kStandardOutput) {
    std::fwrite(text.data(), 1, text.size(), stdout);  // main() sees whether it could be written
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) fail_simulate("cannot write " + path);
}

void show_report(const sim::Report& report, const SimulateFlags& flags) {
  if (shows_text(flags)) std::fputs(sim::report_text(report).c_str(), stdout);
  write_output(flags.json, sim::report_json(report));
  write_output(flags.csv, sim::report_csv(report));
}

void fail_simulate(const std::string& message) {
  std::fprintf(stderr, "pointsman simulate: %s\n", printable_lines(message).c_str());
  throw CLI::RuntimeError(1);
}

}  // namespace pointsman
