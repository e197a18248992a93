#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "experiments/report.h"

namespace pointsman::sim {

struct CalibrateOptions {
  std::string replica;  // only requests of the replica with this URL; empty: of all
  std::uint32_t max_num_batched_tokens = 8'192;  // of the measured engines
  int jobs = 1;                                  // 0: one for each core
  bool quick = false;                            // fewer resamples
  // Called with (fits ended, fits in all) by one thread at a time; may be empty.
  std::function<void(std::size_t, std::size_t)> progress{};
};

struct Calibration {
  Report report;
  std::string scenario;  // keys of a scenario file
};

// Fits an engine's constants (sim/engine_config.h) to a log of `pointsman serve`: of four
// requests in five, and tells how well the constants predict the fifth. Intervals are those of a
// bootstrap over requests (Efron, 1979). Errors name the file, and the line where there is one.
[[nodiscard]] Result<Calibration> run_calibrate(const std::string& path,
                                                const CalibrateOptions& options);

}  // namespace pointsman::sim
