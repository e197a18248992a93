#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"

namespace pointsman::sim {

// Requests in flight per replica over time: their mean, and the coefficient of variation over the
// replicas (standard deviation over mean; 0 while there are none), each averaged over the time
// between begin() and end().
class LoadMeter {
 public:
  explicit LoadMeter(std::size_t replicas) : loads_(replicas, 0) {}

  void begin(TimePoint now) {
    counting_ = true;
    last_ = begun_ = now;
  }
  void end(TimePoint now) {
    if (!counting_) return;
    account(now);
    counting_ = false;
    seconds_ = to_seconds(now - begun_);
  }

  void change(std::size_t replica, std::int64_t by, TimePoint now) {
    account(now);
    std::int64_t& load = loads_[replica];
    squares_ += by * (2 * load + by);
    total_ += by;
    load += by;
  }

  [[nodiscard]] std::size_t replicas() const { return loads_.size(); }
  [[nodiscard]] std::int64_t total() const { return total_; }
  [[nodiscard]] std::int64_t load(std::size_t replica) const { return loads_[replica]; }
  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] double mean_total() const { return seconds_ > 0 ? total_time_ / seconds_ : 0; }
  [[nodiscard]] double mean_cv() const { return seconds_ > 0 ? cv_time_ / seconds_ : 0; }

 private:
  void account(TimePoint now) {
    if (!counting_ || now == last_) return;
    const double took = to_seconds(now - last_);
    last_ = now;
    if (total_ == 0) return;
    const auto n = static_cast<double>(loads_.size());
    const auto total = static_cast<double>(total_);
    // Variance over mean squared, n·Σx² / (Σx)² − 1.
    const double relative = n * static_cast<double>(squares_) / (total * total) - 1;
    cv_time_ += took * std::sqrt(std::max(0.0, relative));
    total_time_ += took * total;
  }

  std::vector<std::int64_t> loads_;
  std::int64_t total_ = 0;
  std::int64_t squares_ = 0;
  bool counting_ = false;
  TimePoint begun_{};
  TimePoint last_{};
  double seconds_ = 0;
  double total_time_ = 0;
  double cv_time_ = 0;
};

}  // namespace pointsman::sim
