#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"

namespace pointsman {

struct HealthOptions {
  int failures_out = 3;  // probes failed in a row until the replica is not ready
  int successes_in = 1;  // probes passed in a row until it is ready again
  int faults_out = 3;    // connection faults of requests in a row, without a success between
  int own_5xx_out = 5;   // the replica's own 5xx in a row (503 and 429 are neutral)
  Duration ejection = std::chrono::seconds(10);  // first ejection; each further one is longer
  Duration max_ejection = std::chrono::seconds(300);
  double usable_floor = 0.5;  // ejections never leave less than this share of a pool's replicas
};

// How a readiness probe ended.
struct ProbeResult {
  enum class Kind : std::uint8_t {
    kReady,
    kNotReady,         // an answer other than 200
    kRefused,          // connection refused, or reset before any byte
    kTimedOut,         // nothing came in time
    kTimedOutServing,  // nothing came in time, yet the replica delivered other bytes meanwhile:
                       // busy
    kFailed,           // anything else
  };
  Kind kind = Kind::kFailed;
  std::string detail;  // for a person: "503 Loading model", "connection refused"
};

// How a request failed, as far as the replica is to blame.
enum class RequestFailure : std::uint8_t {
  kRefused,      // a new connection was refused, or reset before any byte
  kConnection,   // another connection fault (connect time-out, cut before or after the first byte)
  kServerError,  // its own 5xx other than 503
};

// One replica's health as a state machine: pure, time passed in. The fleet owns one per replica and
// applies the floor of ejections, which needs the pool.
//
//   unknown ─ probe passed ─▶ ready ─ failures_out probes failed ─▶ not ready ─ probe passed ─▶
//   ready ready ─ two new connections in a row refused ─▶ gone (exchanges are cut) ─ probe passed
//   ─▶ ready beside it: ejected until a time, by connection faults (a passed probe ends it) or by
//   own 5xx (it does not)
struct HealthState {
  enum class Phase : std::uint8_t { kUnknown, kReady, kNotReady, kGone };
  Phase phase = Phase::kUnknown;
  bool awake = true;
  bool leaving = false;  // said that it is shutting down
  TimePoint leaving_until{};
  int probes_failed = 0;  // in a row
  int probes_passed = 0;  // in a row
  int refused = 0;        // new connections in a row, probes and requests alike
  int faults = 0;         // connection faults of requests in a row
  int own_5xx = 0;        // in a row
  int ejections = 0;      // in a row, for the growing time
  bool ejected_by_5xx = false;
  TimePoint ejected_until{};  // TimePoint{}: not ejected
  std::string detail;         // of the last probe

  [[nodiscard]] bool ejected(TimePoint now) const {
    return ejected_until != TimePoint{} && now < ejected_until;
  }
};

// What a step changed, for the fleet to act on.
struct HealthChange {
  bool went_gone = false;       // cut its exchanges
  bool came_back = false;       // from not ready or gone: its cache may be cold
  bool wants_ejection = false;  // the fleet grants it if the pool's floor allows
};

HealthChange apply_probe(HealthState& state, const ProbeResult& result,
                         const HealthOptions& options, TimePoint now);
HealthChange apply_request_failure(HealthState& state, RequestFailure failure,
                                   const HealthOptions& options, TimePoint now);
void apply_request_success(HealthState& state);
void eject(HealthState& state, bool by_5xx, const HealthOptions& options, TimePoint now);

}  // namespace pointsman
