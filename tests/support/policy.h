#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/pipeline.h"
#include "support/registry.h"

namespace pointsman::testing_support {

// A preset with options, ready to choose.
inline std::unique_ptr<Pipeline> make_policy(std::string preset, OptionMap options = {}) {
  auto built = registry().build({.preset = std::move(preset), .options = std::move(options)});
  if (!built) throw std::invalid_argument(built.error().message);
  return std::move(*built);
}

}  // namespace pointsman::testing_support
