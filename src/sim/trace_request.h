#pragma once

#include <cstdint>

#include "base/time.h"
#include "sim/content.h"

namespace pointsman::sim {

// One request of a trace.
struct TraceRequest {
  Duration at{};  // since the first request of the trace; never before the request before
  std::uint32_t prompt_tokens = 1;
  std::uint32_t output_tokens = 1;
  std::uint32_t max_tokens = 0;   // the client's limit; 0: none
  std::uint64_t session_key = 0;  // 0: the trace names no session
  Content content;                // of the prompt and the answer
};

}  // namespace pointsman::sim
