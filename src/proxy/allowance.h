#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace pointsman {

// How much of something that costs us and serves nobody a peer may still do: a token bucket. A
// burst of `most` is allowed, and `per_second` of it for ever.
class Allowance {
 public:
  Allowance(std::int64_t most, std::int64_t per_second, TimePoint now)
      : most_(most), per_second_(per_second), left_(most), at_(now) {}

  // False: it is used up.
  [[nodiscard]] bool take(std::int64_t amount, TimePoint now) {
    // Whole units only, so that frequent calls lose nothing of the rest of a second.
    const Duration since = std::min<Duration>(now - at_, std::chrono::hours(1));
    const std::int64_t earned = since.count() * per_second_ / kSecond;
    if (earned >= most_) {
      left_ = most_;
      at_ = now;
    } else if (earned > 0) {
      left_ = std::min(most_, left_ + earned);
      at_ += Duration(earned * kSecond / per_second_);
    }
    if (left_ < amount) return false;
    left_ -= amount;
    return true;
  }
  void give(std::int64_t amount) { left_ = std::min(most_, left_ + amount); }

 private:
  static constexpr std::int64_t kSecond = Duration(std::chrono::seconds(1)).count();

  const std::int64_t most_;
  const std::int64_t per_second_;
  std::int64_t left_;
  TimePoint at_;
};

}  // namespace pointsman
