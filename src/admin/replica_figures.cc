#include "admin/replica_figures.h"

#include <algorithm>
#include <utility>

namespace pointsman {

std::vector<ReplicaFigures> replica_figures(const ShownState& state) {
  constexpr std::size_t kAtATime = 32;
  std::vector<ReplicaFigures> all;
  for (ReplicaStatus& status : state.fleet.status()) {
    ReplicaFigures figures;
    figures.status = std::move(status);
    all.push_back(std::move(figures));
  }
  for (std::size_t from = 0; from < all.size(); from += kAtATime) {
    const std::size_t to = std::min(all.size(), from + kAtATime);
    state.router.with([&](const Router& router) {
      for (std::size_t i = from; i < to; ++i) {
        const ReplicaIndex index = all[i].status.index;
        all[i].load = router.ledger()[index];
        all[i].signals = router.signals(index);
        all[i].prefill_rate = router.prefill_rate(index);
        const PrefixTrust& trust = router.prefix_trust();
        all[i].cached_error = trust.error(index);
        for (std::size_t from_what = 0; from_what < kKnowledges; ++from_what) {
          all[i].believed_share[from_what] = trust.share(index, static_cast<Knowledge>(from_what));
        }
        all[i].assumed_blocks = trust.capacity(index);
      }
    });
  }
  if (state.kv_events != nullptr) {
    // Both lists are in the order of the replicas' numbers.
    std::size_t at = 0;
    for (KvEventFeed::Status& rank : state.kv_events->status()) {
      while (at < all.size() && all[at].status.index < rank.replica) ++at;
      if (at == all.size()) break;
      if (all[at].status.index == rank.replica) all[at].kv_events.push_back(std::move(rank));
    }
  }
  const TimePoint now = state.clock.now();
  for (ReplicaFigures& figures : all) {
    figures.requests = state.metrics.replica(figures.status.index, now);
    if (state.scraper != nullptr) figures.scrape = state.scraper->status(figures.status.index);
  }
  return all;
}

}  // namespace pointsman
