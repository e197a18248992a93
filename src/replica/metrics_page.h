#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engine_model.h"

namespace pointsman {

// A Prometheus histogram with fixed upper bounds.
class TimeHistogram {
 public:
  explicit TimeHistogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(bounds.size() + 1) {}

  void add(double seconds);
  // Appends HELP, TYPE and all series.
  void append(std::string& out, std::string_view name, std::string_view help,
              std::string_view model) const;

 private:
  std::span<const double> bounds_;
  std::vector<std::uint64_t> counts_;  // not cumulative; the last is above all bounds
  double sum_ = 0;
};

// What the replica counts beside its engine. Seconds are engine time.
struct ReplicaCounts {
  static constexpr std::array kTtftBounds{0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                                          0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                                          20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
  static constexpr std::array kItlBounds{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                         0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
  static constexpr std::array kE2eBounds{0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                         5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                         60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t finished_stop = 0;
  std::uint64_t finished_length = 0;
  std::uint64_t rejected = 0;  // the queue was full
  TimeHistogram ttft{kTtftBounds};
  TimeHistogram itl{kItlBounds};
  TimeHistogram e2e{kE2eBounds};
};

// The body of /metrics under the names and labels of vLLM 0.32.
[[nodiscard]] std::string metrics_page(std::string_view model, const sim::EngineConfig& config,
                                       const sim::EngineState& state, const ReplicaCounts& counts,
                                       bool awake);

}  // namespace pointsman
