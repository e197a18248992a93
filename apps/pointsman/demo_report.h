#pragma once

#include <string>
#include <vector>

#include "demo_arm.h"
#include "sim/quantile_interval.h"

namespace pointsman {

// A row of the demo's table.
struct DemoRow {
  DemoArm arm;
  DemoResult result;
  sim::QuantileInterval p50;  // TTFT in engine seconds
  sim::QuantileInterval p99;
  double completions_per_s = 0;  // of engine time, in the measured window
};

[[nodiscard]] DemoRow make_demo_row(const DemoArm& arm, DemoResult result, std::uint64_t seed);

// A table for people. Completions are relative to the first row.
[[nodiscard]] std::string demo_table(const std::vector<DemoRow>& rows);

[[nodiscard]] std::string demo_json(const std::vector<DemoRow>& rows, const DemoOptions& options);

}  // namespace pointsman
