#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "admin/metrics_page.h"

namespace pointsman {

// All that is known of one replica at one moment.
struct ReplicaFigures {
  ReplicaStatus status;
  Load load;
  Signals signals;
  double prefill_rate = 0;
  CachedTokensError cached_error;
  std::array<double, kKnowledges> believed_share{};  // see core/prefix_trust.h
  std::uint64_t assumed_blocks = 0;                  // of its cache; 0: no bound is known
  ProxyMetrics::ReplicaFigures requests;
  std::optional<Scraper::Status> scrape;
  std::vector<KvEventFeed::Status> kv_events;  // by rank
};

// Of every configured replica, in the order of their numbers. The router's lock is taken for a few
// replicas at a time, so that a look at a large fleet holds up no decision.
[[nodiscard]] std::vector<ReplicaFigures> replica_figures(const ShownState& state);

}  // namespace pointsman
