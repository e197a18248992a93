#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/decision_log_trace.h"

// Any lines are requests or a problem; and what the requests share always adds up.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pointsman::sim::DecisionLogTrace;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  DecisionLogTrace trace;
  bool sound = trace
                   .add(R"({"pointsman_decision_log":1,"start":"2026-01-31T12:00:00.000Z",)"
                        R"("block_tokens":16})")
                   .empty();
  while (sound && !text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    sound = trace.add(text.substr(0, end)).empty();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!sound) return 0;
  trace.finish();
  pointsman::sim::TraceRequest request;
  pointsman::Duration last{};
  while (trace.next(request)) {
    if (request.at < last || request.prompt_tokens == 0 || request.output_tokens == 0) {
      __builtin_trap();
    }
    last = request.at;
    std::uint32_t before = 0;
    for (const pointsman::sim::ContentRun& run : request.content) {
      if (run.end <= before) __builtin_trap();
      before = run.end;
    }
    if (before != request.prompt_tokens + request.output_tokens) __builtin_trap();
  }
  return 0;
}
