#pragma once

#include <string_view>

namespace pointsman {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Where log lines go. The program installs one sink at start (telemetry/log_sink.h); without one,
// lines go to standard error. The sink must be thread-safe. Never a prompt, never a key.
using LogSink = void (*)(LogLevel level, std::string_view line);
void set_log_sink(LogSink sink);

// For start-up, state changes and faults. Nothing on the path of a good request logs.
void log(LogLevel level, std::string_view line);

inline void log_info(std::string_view line) {
  log(LogLevel::kInfo, line);
}
inline void log_warning(std::string_view line) {
  log(LogLevel::kWarning, line);
}
inline void log_error(std::string_view line) {
  log(LogLevel::kError, line);
}

}  // namespace pointsman
