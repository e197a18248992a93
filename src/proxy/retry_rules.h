#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/time.h"
#include "telemetry/proxy_metrics.h"

namespace pointsman {

struct RetryOptions {
  std::uint32_t tries = 2;        // further tries of one request
  std::uint32_t after_sent = 1;   // of those, after a connection was lost with the request sent
  double budget_share = 0.2;      // retries per request of the window
  std::uint32_t budget_min = 10;  // retries always allowed in a window
  Duration budget_window = std::chrono::seconds(10);
};

// What bears on whether a failed request may be sent to another replica. The failure comes while
// nothing has gone to the client; after that there is no retry at all.
struct RetrySituation {
  RetryReason failure = RetryReason::kRefused;
  std::uint32_t retries = 0;             // done so far
  std::uint32_t retries_after_sent = 0;  // of those, after a loss with the request fully sent
  bool fully_sent = false;               // the replica has the whole request
  bool body_whole = true;                // the body can be sent from its start
  bool stateless = false;                // sending it twice leaves nothing behind
  bool other_candidate = false;          // a usable replica that has not failed this request
};

enum class RetryVerdict : std::uint8_t { kRetry, kDenied };
struct RetryJudgement {
  RetryVerdict verdict = RetryVerdict::kDenied;
  RetryDenied why = RetryDenied::kTries;  // of kDenied
};

// Everything but the budget, in this order: held, tries, safe, candidate.
[[nodiscard]] RetryJudgement judge_retry(const RetrySituation& situation,
                                         const RetryOptions& options);

// The replica has taken the request, and what became of it is not known.
constexpr bool is_loss(RetryReason reason) {
  return reason == RetryReason::kLost || reason == RetryReason::kBadAnswer;
}

// The connection failed, as opposed to an answer that says "not here".
constexpr bool is_connection_failure(RetryReason reason) {
  return reason == RetryReason::kRefused || reason == RetryReason::kConnectTimeout ||
         is_loss(reason);
}

// Bounds retries by the traffic that caused them, so that a fleet that fails as a whole is not
// asked several times as much: in each window at most `share` of its requests, and at least
// `minimum`.
//
// A window is kSlots slots of equal length, the current one included. Time is passed in.
// Thread-safe without a lock; counts that several threads make at the very turn of a slot may be
// lost.
class RetryBudget {
 public:
  explicit RetryBudget(const RetryOptions& options);

  void count_request(TimePoint now) { add(requests_, now); }
  // Whether one more retry fits.
  [[nodiscard]] bool has_room(TimePoint now) const;
  // Likewise; if so it is counted.
  [[nodiscard]] bool take(TimePoint now);

 private:
  static constexpr std::int64_t kSlots = 10;
  // Slot number in the upper half, count in the lower.
  using Slots = std::array<std::atomic<std::uint64_t>, kSlots>;

  [[nodiscard]] std::uint32_t slot_of(TimePoint now) const;
  void add(Slots& slots, TimePoint now);
  [[nodiscard]] std::uint64_t sum(const Slots& slots, TimePoint now) const;

  const double share_;
  const std::uint32_t minimum_;
  const Duration slot_length_;
  Slots requests_{};
  Slots retries_{};
};

}  // namespace pointsman
