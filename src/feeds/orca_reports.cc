#include "feeds/orca_reports.h"

#include "core/signals.h"
#include "signals/orca.h"

namespace pointsman {

void OrcaReports::report(ReplicaIndex replica, std::string_view header, TimePoint now) {
  const OrcaReading reading = parse_orca(header);
  if (reading.empty()) return;
  router_.with([&](Router& router) {
    const Signals& last = router.signals(replica);
    const bool known = last.observed_at != TimePoint{};
    if (known && now - last.observed_at < interval_) return;
    Signals signals;
    signals.observed_at = now;
    signals.max_age = 3 * interval_;
    signals.kv_usage = reading.kv_usage;
    signals.waiting = reading.waiting;
    signals.running = reading.running;
    // What does not change while an engine runs stays known.
    signals.kv_capacity_tokens = last.kv_capacity_tokens;
    signals.block_tokens = last.block_tokens;
    signals.window = router.report_opened(replica);
    router.report_applied(replica, signals);
  });
}

}  // namespace pointsman
