#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pointsman::sim {

// A streamed answer as somebody measured it. Seconds since any moment.
struct MeasuredRequest {
  std::uint32_t replica = 0;  // number of its URL, in the order of first appearance
  double start = 0;           // the request was there
  double first_token = 0;
  double end = 0;  // the last token was there
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t output_tokens = 0;
};

struct MeasuredRequests {
  std::vector<MeasuredRequest> requests;
  std::vector<std::string> replicas;  // URLs
  // Requests of the file that were for a replica, and of those that are left out: why.
  std::uint64_t lines = 0;
  std::uint64_t failed = 0;          // no replica, no 200, or cut
  std::uint64_t tried_again = 0;     // their times are those of several replicas
  std::uint64_t not_streamed = 0;    // without a time to first token
  std::uint64_t uncounted = 0;       // the engine did not say how many tokens there were
  std::uint64_t without_cached = 0;  // used, and taken to have found nothing in the cache
};

// Reads the access log of `pointsman serve` (docs/admin.md), or its decision log
// (docs/decision_log.md). Errors name the file and the line: a file that cannot be read or has no
// line, and a line that is not one of such a log.
[[nodiscard]] Result<MeasuredRequests> read_request_log(const std::string& path);

}  // namespace pointsman::sim
