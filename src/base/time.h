#pragma once

#include <chrono>
#include <cstdint>

namespace pointsman {

using Duration = std::chrono::nanoseconds;

// Marks time points that come from a Clock, so that wall-clock times cannot be mixed in.
struct MonotonicTime {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<MonotonicTime>;
  static constexpr bool is_steady = true;
};

// Nanoseconds since an arbitrary start. The default value, TimePoint{}, means "never".
using TimePoint = std::chrono::time_point<MonotonicTime>;

// Where time comes from. Hosts own one; core and policies only ever see a TimePoint.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const = 0;
};

// The machine's monotonic clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint{
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())};
  }
};

// A clock that moves only when told to, for tests and for the simulator.
class ManualClock final : public Clock {
 public:
  // Starts at one hour, so that "five seconds ago" is a valid time in every test.
  ManualClock() : now_(std::chrono::hours(1)) {}

  [[nodiscard]] TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }
  void set(TimePoint to) { now_ = to; }

 private:
  TimePoint now_;
};

constexpr double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

constexpr Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace pointsman
