#pragma once

#include <limits>
#include <string_view>

namespace pointsman {

// What an `endpoint-load-metrics` response header says (ORCA, as vLLM and the gateways send it): a
// reading that comes with an answer, between two scrapes. NaN: not said, or no reading.
struct OrcaReading {
  float kv_usage = std::numeric_limits<float>::quiet_NaN();  // [0, 1]
  float waiting = std::numeric_limits<float>::quiet_NaN();
  float running = std::numeric_limits<float>::quiet_NaN();

  [[nodiscard]] bool empty() const {
    return kv_usage != kv_usage && waiting != waiting && running != running;  // all NaN
  }
};

// Reads the forms `TEXT named_metrics.kv_cache_usage_perc=0.1, …` and
// `JSON {"named_metrics": {"kv_cache_usage_perc": 0.1}}`, in either case of letters. Of the JSON
// only keys with numbers are looked at, wherever they stand. Other forms (BIN) and malformed parts
// say nothing. No allocation.
OrcaReading parse_orca(std::string_view header);

}  // namespace pointsman
