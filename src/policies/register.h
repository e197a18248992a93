#pragma once

#include "core/registry.h"

namespace pointsman {

// A registry with every stage and preset of this program.
[[nodiscard]] Registry make_registry();

// The presets by name (presets.cc). The stages must have been added.
void add_presets(Registry& registry);

}  // namespace pointsman
