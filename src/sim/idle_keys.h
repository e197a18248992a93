#pragma once

#include <span>

#include "config/policy_reader.h"
#include "config/yaml_tree.h"
#include "sim/scenario.h"

namespace pointsman::sim {

// Tells `faults` of the keys that a scenario file gives and that change nothing in it, such as a
// trace where arrivals are of another kind: whoever wrote one wanted something that does not
// happen. `root` is the file; `file` what it says; `run` the same with what the command line puts
// in its place: a key that counts in either of them, or before any arm, is not told of. Defaults
// and a preset's values are nobody's keys.
void find_idle_keys(const YamlNode& root, const Scenario& file, const Scenario& run,
                    std::span<const Arm> arms, ConfigFaults& faults);

}  // namespace pointsman::sim
