#pragma once

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

// Reads a scenario file's text; docs/scenario.md has its keys. All that is wrong with it is
// reported at once, one line each:
//   runs.yaml:7: workload.thnik_s: unknown key (known: …; nearest: think_s)
// `file` is the name for those lines; a trace's path is taken from its folder.
[[nodiscard]] Result<LoadedScenario> load_scenario(std::string_view text, std::string_view file,
                                                   const Registry& registry);
// The same from disk.
[[nodiscard]] Result<LoadedScenario> load_scenario_file(const std::string& path,
                                                        const Registry& registry);

}  // namespace pointsman::sim
