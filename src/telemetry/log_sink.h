#pragma once

#include <string_view>

#include "base/log.h"
#include "base/result.h"

namespace pointsman {

// Makes base/log.h write "2026-01-31T12:00:00.000Z warning text" to standard error, from the given
// level on. Thread-safe. To be called once, at start.
void install_log_sink(LogLevel from);

// "debug", "info", "warning" or "error".
Result<LogLevel> parse_log_level(std::string_view name);

}  // namespace pointsman
