#pragma once

#include <string_view>

#include "base/time.h"
#include "core/replica.h"
#include "runtime/shared_router.h"

namespace pointsman {

// Takes the load that a replica reports beside its answers (ORCA) for a report of its own where
// there is no other: such a header knows only KV use and the queue, so a metrics page that is at
// most `interval` old goes before it. Thread-safe; called on the request path, and cheap where it
// has nothing to do.
class OrcaReports {
 public:
  OrcaReports(SharedRouter& router, Duration interval) : router_(router), interval_(interval) {}

  // The value of an `endpoint-load-metrics` response header.
  void report(ReplicaIndex replica, std::string_view header, TimePoint now);

 private:
  SharedRouter& router_;
  const Duration interval_;
};

}  // namespace pointsman
