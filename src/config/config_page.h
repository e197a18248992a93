#pragma once

#include <string>

namespace pointsman {

// docs/config.md: every key with type, default, allowed values and help.
std::string config_markdown();

}  // namespace pointsman
