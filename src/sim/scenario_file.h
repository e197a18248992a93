#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/registry.h"
#include "sim/scenario.h"

namespace pointsman::sim {

struct LoadedScenario {
  Scenario scenario;
  std::vector<Arm> arms;
};

// What the command line puts in the place of a scenario's own.
struct ScenarioOverrides {
  std::optional<std::uint32_t> replicas{};  // --replicas: as set_replicas() does
  std::optional<double> sharing{};          // --sharing: as set_sharing() does
  bool quick = false;                       // --quick: a short run
  std::optional<std::uint32_t> requests{};  // --requests: a run's length; of a trace the first
  std::string trace{};                      // --trace: its requests; a path as it is
};

// For a named scenario; load_scenario() does it for a file.
void apply_overrides(Scenario& scenario, const ScenarioOverrides& overrides);

// Reads a scenario file's text; docs/scenario.md has its keys. All that is wrong with it is
// reported at once, one line each:
//   runs.yaml:7: workload.thnik_s: unknown key (known: …; nearest: think_s)
// `file` is the name for those lines; a trace's path is taken from its folder. What must hold
// between values is checked of the scenario that is run, with the overrides.
[[nodiscard]] Result<LoadedScenario> load_scenario(std::string_view text, std::string_view file,
                                                   const Registry& registry,
                                                   const ScenarioOverrides& overrides = {});
// The same from disk.
[[nodiscard]] Result<LoadedScenario> load_scenario_file(const std::string& path,
                                                        const Registry& registry,
                                                        const ScenarioOverrides& overrides = {});

}  // namespace pointsman::sim
