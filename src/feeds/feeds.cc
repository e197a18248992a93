#include "feeds/feeds.h"

#include <utility>

namespace pointsman {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);

}  // namespace

Feeds::Feeds(Reactor& reactor, Resolver& resolver, Fleet& fleet, SharedRouter& router,
             const Options& options, Prober::LastByte last_byte, KvEventFeed* kv_events)
    : reactor_(reactor),
      fleet_(fleet),
      prober_(reactor, resolver, fleet, options.health, std::move(last_byte)),
      scraper_(reactor, resolver, fleet, router, options.signals),
      models_(reactor, resolver, fleet, options.models),
      kv_events_(kv_events),
      tick_timer_([this] { tick(); }) {
  if (kv_events_ != nullptr) {
    scraper_.on_reading([this](ReplicaIndex replica, const EngineReading& reading) {
      kv_events_->engine_said(replica, reading.kv_blocks, reading.prefix_caching);
    });
  }
  tick();
}

Feeds::~Feeds() = default;

void Feeds::when_probed(Duration at_most, std::function<void()> callback) {
  probed_deadline_ = reactor_.now() + at_most;
  on_probed_ = std::move(callback);
}

void Feeds::tick() {
  reactor_.arm(tick_timer_, kTick);
  fleet_.tick();
  const std::uint64_t generation = fleet_.generation();
  if (generation != generation_) {
    generation_ = generation;
    const Targets targets = fleet_.replicas();
    prober_.follow(targets);
    scraper_.follow(targets);
    models_.follow(targets);
    if (kv_events_ != nullptr) kv_events_->follow(targets);
  }
  models_.tick();
  if (on_probed_ && (prober_.all_probed() || reactor_.now() >= probed_deadline_)) {
    std::exchange(on_probed_, nullptr)();
  }
}

}  // namespace pointsman
