#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "config/yaml_tree.h"
#include "core/signals.h"

namespace pointsman {

// The body of POST /v1/signals: what a replica, or something beside it, says of its state.
struct PushedReport {
  std::string replica;              // URL, HOST:PORT or number
  std::optional<double> timestamp;  // seconds since 1970; absent: now
  Signals signals;                  // without times and window
};

// Reads {"replica", "timestamp", "kv_usage", "running", "waiting", "queued_tokens",
// "prefix_hit_rate", "kv_capacity_tokens", "block_tokens"}. All signals may be left out or null,
// which means unknown; one at least must be there. Unknown keys and values out of range are errors.
Result<PushedReport> read_pushed_report(const YamlNode& body);

}  // namespace pointsman
