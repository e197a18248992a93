#pragma once

#include "core/registry.h"
#include "policies/register.h"

namespace pointsman::testing_support {

// The policies that ship.
inline const Registry& registry() {
  static const Registry made = make_registry();
  return made;
}

}  // namespace pointsman::testing_support
