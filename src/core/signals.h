#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/time.h"

namespace pointsman {

// Names the moment at which a report was asked for, within the ledger's account of one replica:
// what was sent in this window or a later one cannot be in the report. See Ledger::open_window().
using ReportWindow = std::uint64_t;

// What a replica last said of itself. A quantity it did not report is NaN (or 0 where said so), and
// a report older than max_age says nothing: unknown, never zero.
struct Signals {
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  TimePoint observed_at{};  // when the report arrived; TimePoint{}: there was none yet
  Duration max_age{};       // three report intervals
  ReportWindow window = 0;  // opened just before the report was asked for

  float kv_usage = kUnknown;             // share of KV blocks in use by running requests, [0, 1]
  float running = kUnknown;              // requests in the running batch
  float waiting = kUnknown;              // requests queued in the engine
  float queued_tokens = kUnknown;        // prompt tokens queued in the engine
  float prefix_hit_rate = kUnknown;      // share of prompt tokens found cached, since start
  double prefix_queries = kUnknown;      // prompt tokens looked up in the prefix cache, since start
  double prefix_hits = kUnknown;         // those found there
  std::optional<bool> prefix_caching{};  // whether finished prompts stay cached at all
  std::uint64_t kv_capacity_tokens = 0;  // 0: not reported
  std::uint32_t block_tokens = 0;        // tokens of a KV block; 0: unknown

  [[nodiscard]] bool fresh(TimePoint now) const {
    return observed_at != TimePoint{} && now - observed_at <= max_age;
  }
  [[nodiscard]] bool knows_kv(TimePoint now) const { return fresh(now) && !std::isnan(kv_usage); }
  [[nodiscard]] bool knows_waiting(TimePoint now) const {
    return fresh(now) && !std::isnan(waiting);
  }
};

}  // namespace pointsman
