#pragma once

#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"

namespace pointsman {

// Takes load signals that someone sends instead of being asked: the body of POST /v1/signals.
//
//   {"replica": "http://10.0.0.1:8000", "timestamp": 1766750400.25,
//    "signals": {"kv_usage": 0.41, "running": 5, "waiting": 2, "queued_tokens": 900,
//                "prefix_hit_rate": 0.6, "kv_capacity_tokens": 400000, "block_tokens": 16,
//                "awake": 1}}
//
// or an array of such objects, which is taken as a whole or not at all. `replica` is its configured
// URL. `timestamp` is when the signals were read, in seconds of Unix time; absent: now. Signals
// that are older than `max_age` are refused, and so are unknown names, values that are no number or
// out of their range, and replicas that are not configured; the error names what is wrong. Signals
// that are not sent count as unknown: a push is a whole report, as a page is.
//
// `unix_now` in seconds. Thread-safe.
Result<void> take_pushed_signals(std::string_view json, Fleet& fleet, SharedRouter& router,
                                 Duration max_age, TimePoint now, double unix_now);

}  // namespace pointsman
