#include "core/ledger.h"

#include <algorithm>

namespace pointsman {
namespace {

// Sums of kMaxPeers such values stay far from the ends of their types.
constexpr std::int32_t kMostPeerRequests = 1'000'000;
constexpr std::int64_t kMostPeerTokens = 1'000'000'000'000;

}  // namespace

Charge Ledger::book(ReplicaIndex replica, const Cost& cost, TimePoint now, TimePoint prefill_due) {
  reserve(std::size_t{replica} + 1);
  Load& load = loads_[replica];
  Account& account = accounts_[replica];

  std::uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
    // release() must never have to allocate.
    if (free_.capacity() < entries_.capacity()) free_.reserve(entries_.capacity());
  } else {
    index = free_.back();
    free_.pop_back();
  }

  ++load.in_flight;
  ++load.awaiting;
  load.prefill_tokens += cost.uncached_tokens;
  load.prompt_tokens += cost.prompt_tokens;
  load.tokens_since_report += cost.prompt_tokens;
  ++load.awaiting_since_report;
  account.tokens_ever += cost.prompt_tokens;
  ++account.at(account.current).awaiting;

  Entry& entry = entries_[index];
  entry.cost = cost;
  entry.replica = replica;
  entry.phase = Phase::kPrefill;
  entry.booked_window = account.current;
  entry.work_ahead = load.all_prefill_tokens();
  entry.booked_at = now;

  if (prefill_due != TimePoint{}) {
    if (due_.size() > 64 + 2 * entries_.size()) drop_dead_dues();
    due_.push_back({prefill_due, index, entry.generation});
    std::push_heap(due_.begin(), due_.end());
  }

  Charge charge;
  charge.entry_ = index;
  charge.replica_ = replica;
  return charge;
}

bool Ledger::first_token(Charge& charge) {
  if (!charge.held()) return false;
  Entry& entry = entries_[charge.entry_];
  if (entry.phase == Phase::kDecode) return false;
  if (entry.phase == Phase::kPrefill) release_prefill(entry);
  leave_awaiting(entry);
  entry.phase = Phase::kDecode;
  return true;
}

void Ledger::release(Charge charge) {
  if (!charge.held()) return;
  first_token(charge);
  Entry& entry = entries_[charge.entry_];
  Load& load = loads_[entry.replica];
  --load.in_flight;
  load.prompt_tokens -= entry.cost.prompt_tokens;
  ++entry.generation;
  free_.push_back(charge.entry_);
  charge.entry_ = Charge::kNone;
}

void Ledger::advance(TimePoint now) {
  while (!due_.empty() && due_.front().at <= now) {
    const Due due = due_.front();
    std::pop_heap(due_.begin(), due_.end());
    due_.pop_back();
    if (!waits_for_prefill(due)) continue;
    Entry& entry = entries_[due.entry];
    release_prefill(entry);
    Account& account = accounts_[entry.replica];
    entry.phase = Phase::kPrefillReleased;
    entry.released_window = account.current;
    ++account.at(account.current).leaving;
  }
}

ReportWindow Ledger::open_window(ReplicaIndex replica) {
  reserve(std::size_t{replica} + 1);
  Account& account = accounts_[replica];
  const ReportWindow before = account.oldest();
  ++account.current;
  const ReportWindow oldest = account.oldest();
  if (oldest > before) {
    // The slot of `before` is about to be reused; who waits there for a report goes on waiting.
    account.at(oldest).leaving += account.at(before).leaving;
  }
  account.at(account.current) = Window{account.tokens_ever, 0, 0};
  return account.current;
}

void Ledger::close_window(ReplicaIndex replica, ReportWindow window) {
  if (replica >= accounts_.size()) return;
  Account& account = accounts_[replica];
  if (window <= account.closed || window > account.current) return;
  if (window <= account.oldest()) return;
  account.closed = window;
  Load& load = loads_[replica];
  for (ReportWindow w = account.oldest(); w < window; ++w) {
    load.awaiting -= account.at(w).leaving;
    account.at(w).leaving = 0;
  }
  load.tokens_since_report = account.tokens_ever - account.at(window).tokens_before;
  load.awaiting_since_report = 0;
  for (ReportWindow w = window; w <= account.current; ++w) {
    load.awaiting_since_report += account.at(w).awaiting;
  }
}

void Ledger::own_loads(std::vector<PeerLoad>& out) const {
  for (ReplicaIndex i = 0; i < loads_.size(); ++i) {
    const Load& load = loads_[i];
    if (load.in_flight > 0) out.push_back({i, load.in_flight, load.prefill_tokens});
  }
}

void Ledger::apply_peer(PeerIndex peer, std::span<const PeerLoad> loads) {
  assert(peer < kMaxPeers);
  if (peer >= peers_.size()) peers_.resize(std::size_t{peer} + 1);
  std::vector<PeerLoad>& told = peers_[peer];
  for (const PeerLoad& old : told) {
    loads_[old.replica].peers_in_flight -= old.in_flight;
    loads_[old.replica].peers_prefill_tokens -= old.prefill_tokens;
  }
  told.clear();
  for (PeerLoad load : loads) {
    if (load.replica >= kMaxReplicas) continue;
    load.in_flight = std::clamp(load.in_flight, 0, kMostPeerRequests);
    load.prefill_tokens = std::clamp<std::int64_t>(load.prefill_tokens, 0, kMostPeerTokens);
    reserve(std::size_t{load.replica} + 1);
    loads_[load.replica].peers_in_flight += load.in_flight;
    loads_[load.replica].peers_prefill_tokens += load.prefill_tokens;
    told.push_back(load);
  }
}

void Ledger::forget_peers_of(ReplicaIndex replica) {
  if (replica >= loads_.size()) return;
  loads_[replica].peers_in_flight = 0;
  loads_[replica].peers_prefill_tokens = 0;
  for (std::vector<PeerLoad>& told : peers_) {
    std::erase_if(told, [&](const PeerLoad& load) { return load.replica == replica; });
  }
}

const Cost& Ledger::cost(const Charge& charge) const {
  assert(charge.held());
  return entries_[charge.entry_].cost;
}

std::int64_t Ledger::work_ahead(const Charge& charge) const {
  assert(charge.held());
  return entries_[charge.entry_].work_ahead;
}

TimePoint Ledger::booked_at(const Charge& charge) const {
  assert(charge.held());
  return entries_[charge.entry_].booked_at;
}

void Ledger::reserve(std::size_t count) {
  if (count <= loads_.size()) return;
  loads_.resize(count);
  accounts_.resize(count);
}

void Ledger::release_prefill(const Entry& entry) {
  loads_[entry.replica].prefill_tokens -= entry.cost.uncached_tokens;
}

void Ledger::leave_awaiting(const Entry& entry) {
  Account& account = accounts_[entry.replica];
  if (account.keeps(entry.booked_window)) --account.at(entry.booked_window).awaiting;
  if (entry.phase == Phase::kPrefillReleased) {
    if (entry.released_window < account.closed) return;  // left when that report was applied
    --account.at(std::max(entry.released_window, account.oldest())).leaving;
  }
  --loads_[entry.replica].awaiting;
  if (entry.booked_window >= account.closed) --loads_[entry.replica].awaiting_since_report;
}

bool Ledger::waits_for_prefill(const Due& due) const {
  const Entry& entry = entries_[due.entry];
  return entry.generation == due.generation && entry.phase == Phase::kPrefill;
}

void Ledger::drop_dead_dues() {
  std::erase_if(due_, [this](const Due& due) { return !waits_for_prefill(due); });
  std::make_heap(due_.begin(), due_.end());
}

}  // namespace pointsman
