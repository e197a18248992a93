#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "access/key_table.h"
#include "base/time.h"
#include "feeds/kv_event_feed.h"
#include "feeds/scraper.h"
#include "net/tls_context.h"
#include "runtime/fleet.h"
#include "runtime/shared_router.h"
#include "telemetry/access_log.h"
#include "telemetry/decision_log.h"
#include "telemetry/proxy_metrics.h"

namespace pointsman {

// What the admin and observe ports show. All of it outlives them.
struct ShownState {
  Fleet& fleet;
  SharedRouter& router;
  ProxyMetrics& metrics;
  const Scraper* scraper = nullptr;           // of the same reactor; may be null
  const KvEventFeed* kv_events = nullptr;     // may be null
  const AccessLog* access_log = nullptr;      // may be null
  const DecisionLog* decision_log = nullptr;  // may be null
  const TlsServer* tls = nullptr;             // of the data port; may be null
  const TlsClients* tls_clients = nullptr;    // towards replicas; may be null
  const KeyTable* keys = nullptr;             // may be null
  std::function<bool()> ready;                // whether a request could be served now
  const Clock& clock;
  std::string_view version;
};

// GET /metrics: the data plane's counts, then replicas, decisions and the prefix index. Every label
// value is a word of the program or comes from the configuration or the key file, so that no client
// can make a series. docs/metrics.md lists the families.
[[nodiscard]] std::string metrics_page(const ShownState& state);

}  // namespace pointsman
