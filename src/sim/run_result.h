#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace pointsman::sim {

// What one run measured. Times are in seconds. A quantity that was not measured, or of which there
// was no instance, is NaN. Measured requests are those that arrived after the warm-up and before
// arrivals ended; all of them have ended, so that no slow one is left out.
struct RunResult {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  double requests = 0;         // measured
  double offered_rps = kNone;  // measured requests over the measured time

  double ttft_mean_s = kNone;
  double ttft_p50_s = kNone;
  double ttft_p90_s = kNone;
  double ttft_p99_s = kNone;
  double ttft_p50_short_s = kNone;
  double ttft_p99_short_s = kNone;
  double ttft_p50_long_s = kNone;
  double ttft_p99_long_s = kNone;
  double tpot_p50_s = kNone;
  double tpot_p99_s = kNone;
  double e2e_mean_s = kNone;
  double e2e_p50_s = kNone;
  double e2e_p99_s = kNone;

  double prefix_hit_rate = kNone;
  double prefix_hit_bound = kNone;
  double predicted_hit_rate = kNone;
  double follow_up_share = kNone;

  double goodput_rps = kNone;
  double closed_loop_rps = kNone;

  double mean_kv = kNone;
  double busy_share = kNone;
  double cv_load = kNone;
  double mean_in_flight = kNone;
  double queue_growth_rps = kNone;
  double over_capacity = 0;

  double valve_openings = 0;
  double all_saturated = 0;
  double pool_fallbacks = 0;
  double replica_share_min = kNone;
  double replica_share_max = kNone;
  double preemptions = 0;
  double retried = 0;
  double failed = 0;

  double trace_left_out = kNone;
  double trace_late = kNone;
  double trace_cut = kNone;
  double requests_cut = kNone;
  double conversations_cut = kNone;
  double faults_missed = kNone;

  double balancers = 0;
  double poll_s = 0;
  double exchange_s = 0;
  double replicas_general = 0;
  double replicas_long_context = 0;
  double replicas_long_generation = 0;
};

// How values of several seeds are brought together. A share is of runs: each says 0 or 1.
enum class MeasureMean : std::uint8_t { kGeometric, kArithmetic, kShare };

// One measure of a run by its full name. Keys are stable: files and other programs rely on them.
struct Measure {
  std::string_view key;
  std::string_view name;
  MeasureMean mean;
  double RunResult::* value;
  // No run's value, and so no mean, lies outside.
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
};

// All measures, in the order of the struct.
[[nodiscard]] std::span<const Measure> measures();
// The one with that key, or nullptr.
[[nodiscard]] const Measure* find_measure(std::string_view key);

}  // namespace pointsman::sim
