#include "proxy/retry_rules.h"

#include <algorithm>

namespace pointsman {

RetryJudgement judge_retry(const RetrySituation& situation, const RetryOptions& options) {
  const auto denied = [](RetryDenied why) { return RetryJudgement{RetryVerdict::kDenied, why}; };
  if (!situation.body_whole) return denied(RetryDenied::kNotHeld);
  if (situation.retries >= options.tries) return denied(RetryDenied::kTries);
  if (is_loss(situation.failure) && situation.fully_sent) {
    // The replica may have worked on it, and may still be: once more at most, and only where a
    // second run does no harm.
    if (!situation.stateless) return denied(RetryDenied::kNotSafe);
    if (situation.retries_after_sent >= options.after_sent) return denied(RetryDenied::kTries);
  }
  if (!situation.other_candidate) return denied(RetryDenied::kNobody);
  return {RetryVerdict::kRetry, RetryDenied::kTries};
}

RetryBudget::RetryBudget(const RetryOptions& options)
    : share_(options.budget_share),
      minimum_(options.budget_min),
      slot_length_(std::max<Duration>(options.budget_window / kSlots, Duration(1))) {}

std::uint32_t RetryBudget::slot_of(TimePoint now) const {
  return static_cast<std::uint32_t>(now.time_since_epoch() / slot_length_);
}

void RetryBudget::add(Slots& slots, TimePoint now) {
  const std::uint32_t slot = slot_of(now);
  std::atomic<std::uint64_t>& cell = slots[slot % kSlots];
  std::uint64_t seen = cell.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    next = static_cast<std::uint32_t>(seen >> 32) == slot
               ? seen + 1
               : (static_cast<std::uint64_t>(slot) << 32) | 1U;
  } while (!cell.compare_exchange_weak(seen, next, std::memory_order_relaxed));
}

std::uint64_t RetryBudget::sum(const Slots& slots, TimePoint now) const {
  const std::uint32_t current = slot_of(now);
  std::uint64_t total = 0;
  for (const std::atomic<std::uint64_t>& cell : slots) {
    const std::uint64_t seen = cell.load(std::memory_order_relaxed);
    if (current - static_cast<std::uint32_t>(seen >> 32) < kSlots) {
      total += seen & 0xffffffffU;
    }
  }
  return total;
}

bool RetryBudget::has_room(TimePoint now) const {
  const double allowed =
      std::max(static_cast<double>(minimum_), share_ * static_cast<double>(sum(requests_, now)));
  return static_cast<double>(sum(retries_, now)) + 1 <= allowed;
}

bool RetryBudget::take(TimePoint now) {
  if (!has_room(now)) return false;
  add(retries_, now);
  return true;
}

}  // namespace pointsman
