#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "core/replica.h"
#include "core/signals.h"

namespace pointsman {

// What a request weighs on its replica.
struct Cost {
  std::uint32_t prompt_tokens = 0;    // the whole prompt
  std::uint32_t uncached_tokens = 0;  // the part that is expected to be computed there
};

// One request's booking on a replica. Move-only: the type carries the rule that every booking is
// released exactly once, on every path.
class Charge {
 public:
  Charge() = default;
  Charge(Charge&& other) noexcept : entry_(other.entry_), replica_(other.replica_) {
    other.entry_ = kNone;
  }
  Charge& operator=(Charge&& other) noexcept {
    assert(!held());
    entry_ = other.entry_;
    replica_ = other.replica_;
    other.entry_ = kNone;
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { assert(!held()); }

  [[nodiscard]] bool held() const { return entry_ != kNone; }
  [[nodiscard]] ReplicaIndex replica() const { return replica_; }
  // A small number that is unique among the held charges: an index for side tables.
  [[nodiscard]] std::uint32_t entry() const { return entry_; }

 private:
  friend class Ledger;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t entry_ = kNone;
  ReplicaIndex replica_ = kNoReplica;
};

// A number for each other router that shares its sums with this one. Dense from 0, given by the
// host.
using PeerIndex = std::uint16_t;
inline constexpr std::size_t kMaxPeers = 1'024;

// What a router tells its peers of one replica: the sums of its own bookings there.
struct PeerLoad {
  ReplicaIndex replica = kNoReplica;
  std::int32_t in_flight = 0;       // requests
  std::int64_t prefill_tokens = 0;  // outstanding prefill
};

// The sum of the bookings on one replica.
struct Load {
  std::int32_t in_flight = 0;  // requests sent and not ended
  std::int32_t awaiting = 0;   // those that may still be queued or in prefill: no first token yet
  std::int64_t prefill_tokens = 0;  // outstanding prefill: uncached tokens of requests whose
                                    // prefill part has not been released
  std::int64_t prompt_tokens = 0;   // charged tokens: prompts of all requests in flight
  // Since the newest applied report was asked for; everything where there was none:
  std::int64_t tokens_since_report = 0;    // prompt tokens sent, of ended requests too
  std::int32_t awaiting_since_report = 0;  // requests sent that have had no first token
  // The other routers' sums, as their newest exchanges tell; 0 where none shares its own.
  std::int32_t peers_in_flight = 0;
  std::int64_t peers_prefill_tokens = 0;
  // Of all routers, as far as known.
  [[nodiscard]] std::int64_t all_prefill_tokens() const {
    return prefill_tokens + peers_prefill_tokens;
  }
};

// What the router itself has sent to each replica and not yet seen finished.
//
// Reported signals are seconds old; the ledger is exact and immediate, and so it is what stops two
// requests in the same millisecond from choosing the same idle replica.
//
// Life of a charge: book() in the same step as the choice → first_token() → release() exactly once,
// on every path: end, client gone, timeout, upstream failure, retry.
//
// A plain (not streamed) answer shows no first token. Its prefill part is released by advance()
// when its predicted prefill time has passed, and it leaves `awaiting` when a report that was asked
// for after that moment has been applied: from then on the engine's own numbers speak for it.
// Without reports it leaves at its end.
//
// Report windows tell which own requests a report cannot know of yet. open_window() is called just
// before a report is asked for, and close_window() when it has been applied; a report that failed
// is simply never closed. The windows of the last kWindows - 2 reports can be closed; closing an
// older one is ignored, which leaves more counted as unknown to the report: the safe side.
//
// Several routers in front of the same replicas may tell each other their sums: own_loads() is what
// to tell, apply_peer() takes what a peer told. A peer's sums stand until it tells new ones or is
// forgotten; how often they are exchanged, and when a silent peer is forgotten, is the host's.
//
// Not thread-safe: SharedRouter (runtime/) holds the lock.
class Ledger {
 public:
  static constexpr std::size_t kWindows = 16;

  // Books `cost` on `replica`. `prefill_due` is when a plain answer's prefill part is taken for
  // done; TimePoint{} for a stream, whose first token will be seen.
  [[nodiscard]] Charge book(ReplicaIndex replica, const Cost& cost, TimePoint now,
                            TimePoint prefill_due);

  // The first token came: the prompt has been processed. Returns whether it was the first call for
  // this charge; calling it again is harmless.
  bool first_token(Charge& charge);

  // Returns the charge. A charge that is not held is ignored.
  void release(Charge charge);

  // Releases the prefill parts that are due. Hosts call it (through Router) before each decision.
  void advance(TimePoint now);

  // A report is about to be asked for: what is booked from now on will not be in it.
  ReportWindow open_window(ReplicaIndex replica);
  // The report asked for at `window` has been applied.
  void close_window(ReplicaIndex replica, ReportWindow window);

  [[nodiscard]] const Load& operator[](ReplicaIndex replica) const {
    static constexpr Load kIdle;
    return replica < loads_.size() ? loads_[replica] : kIdle;
  }

  // The own sums of every replica that has any, appended to `out`.
  void own_loads(std::vector<PeerLoad>& out) const;
  // `peer` (below kMaxPeers) tells its sums, in place of all it told before; replicas that it does
  // not name have none. Each replica at most once. Values out of range are brought into it.
  void apply_peer(PeerIndex peer, std::span<const PeerLoad> loads);
  // No peer's sums for the replica stand any more.
  void forget_peers_of(ReplicaIndex replica);

  // What a held charge was booked with.
  [[nodiscard]] const Cost& cost(const Charge& charge) const;
  // Outstanding prefill tokens on the replica at booking, the peers' included, plus the charge's
  // own: the work that stood before the first token.
  [[nodiscard]] std::int64_t work_ahead(const Charge& charge) const;
  [[nodiscard]] TimePoint booked_at(const Charge& charge) const;

  // Makes room for replicas [0, count), so that book() need not allocate.
  void reserve(std::size_t count);

 private:
  enum class Phase : std::uint8_t { kPrefill, kPrefillReleased, kDecode };

  struct Entry {
    Cost cost;
    ReplicaIndex replica = kNoReplica;
    Phase phase = Phase::kPrefill;
    std::uint32_t generation = 0;  // distinguishes re-uses of the entry in due_
    ReportWindow booked_window = 0;
    ReportWindow released_window = 0;  // where a plain request's prefill part was released
    std::int64_t work_ahead = 0;
    TimePoint booked_at{};
  };

  struct Window {
    std::int64_t tokens_before = 0;  // prompt tokens ever booked when the window was opened
    std::int32_t awaiting = 0;       // booked in this window, no first token yet
    std::int32_t leaving = 0;  // plain requests whose prefill part was released in this window and
                               // that still count as awaiting; the oldest window also has those of
                               // windows that are no longer kept
  };

  // What report windows need to know; apart from the loads, which decisions read for every replica.
  struct Account {
    std::int64_t tokens_ever = 0;
    ReportWindow current = 0;
    ReportWindow closed = 0;  // the newest applied report's window
    std::array<Window, kWindows> windows{};

    [[nodiscard]] ReportWindow oldest() const {
      return current < kWindows ? 0 : current - kWindows + 1;
    }
    [[nodiscard]] bool keeps(ReportWindow window) const {
      return window >= oldest() && window <= current;
    }
    Window& at(ReportWindow window) { return windows[window % kWindows]; }
    [[nodiscard]] const Window& at(ReportWindow window) const { return windows[window % kWindows]; }
  };

  struct Due {
    TimePoint at;
    std::uint32_t entry;
    std::uint32_t generation;
    // Orders a heap whose top is the earliest.
    bool operator<(const Due& other) const { return at > other.at; }
  };

  // Ends the entry's prefill part.
  void release_prefill(const Entry& entry);
  // Takes the entry out of `awaiting`, unless it has left already.
  void leave_awaiting(const Entry& entry);
  [[nodiscard]] bool waits_for_prefill(const Due& due) const;
  void drop_dead_dues();

  std::vector<Load> loads_;        // by ReplicaIndex
  std::vector<Account> accounts_;  // by ReplicaIndex
  std::vector<Entry> entries_;     // by Charge::entry()
  std::vector<std::uint32_t> free_;
  std::vector<Due> due_;                      // a heap
  std::vector<std::vector<PeerLoad>> peers_;  // by PeerIndex: what each told last
};

}  // namespace pointsman
