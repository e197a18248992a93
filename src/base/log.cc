#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <string>

namespace pointsman {
namespace {

void to_stderr(LogLevel level, std::string_view line) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  std::string text = kNames[static_cast<int>(level)];
  text.append(": ").append(line).push_back('\n');
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::atomic<LogSink> g_sink{&to_stderr};

}  // namespace

void set_log_sink(LogSink sink) {
  g_sink.store(sink != nullptr ? sink : &to_stderr);
}

void log(LogLevel level, std::string_view line) {
  g_sink.load()(level, line);
}

}  // namespace pointsman
