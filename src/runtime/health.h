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

// Why a replica is ejected, and with that what ends it early.
enum class EjectionCause : std::uint8_t {
  kNone,
  kRefused,      // nothing but refused connections: a passed probe ends it
  kConnection,   // connection faults of other kinds too: only time ends it
  kServerError,  // its own 5xx, which a probe does not see: only time ends it
};

// One replica's health as a state machine: pure, time passed in. The fleet owns one per replica and
// applies the floor of ejections, which needs the pool.
//
//   unknown ─ probe passed ─▶ ready ─ failures_out probes failed ─▶ not ready ─ probe passed ─▶
//   ready; any ─ two new connections in a row refused ─▶ gone (its exchanges are cut) ─ probe
//   passed ─▶ ready; gone ─ probe answered otherwise ─▶ not ready
//
// Beside it, ejected until a time by what requests met. Probes and requests count apart: a passed
// probe forgives no fault of a request, and the other way round; a probe each second would wipe out
// every count otherwise.
struct HealthState {
  enum class Phase : std::uint8_t { kUnknown, kReady, kNotReady, kGone };
  Phase phase = Phase::kUnknown;
  bool awake = true;
  bool leaving = false;  // said that it is shutting down
  TimePoint leaving_until{};
  bool leaving_seen_down = false;  // a probe has failed since then
  int probes_failed = 0;           // in a row
  int probes_passed = 0;           // in a row
  int refused = 0;                 // new connections in a row, probes and requests alike
  int faults = 0;                  // connection faults of requests in a row
  int refused_faults = 0;          // of those, refused ones
  int own_5xx = 0;                 // in a row
  int ejections = 0;               // close to each other, for the growing time
  EjectionCause ejection = EjectionCause::kNone;  // of the last one
  TimePoint ejected_until{};                      // TimePoint{}: never ejected
  std::string detail;                             // of the last probe
  std::string gone_for;                           // why it is gone: "connection refused"

  [[nodiscard]] bool ejected(TimePoint now) const {
    return ejected_until != TimePoint{} && now < ejected_until;
  }
  [[nodiscard]] bool is_leaving(TimePoint now) const { return leaving && now < leaving_until; }
  // May be given requests, as far as health goes.
  [[nodiscard]] bool usable(TimePoint now) const {
    return phase == Phase::kReady && awake && !ejected(now) && !is_leaving(now);
  }
  // Something that a request may clear by its success or by a new connection that answers.
  [[nodiscard]] bool has_faults() const { return faults > 0 || own_5xx > 0 || refused > 0; }
};

// What a step changed, for the fleet to act on.
struct HealthChange {
  bool went_gone = false;  // cut its exchanges
  bool came_back = false;  // from not ready or gone: its cache may be cold
  // The fleet grants it, by eject(), if the pool's floor allows.
  EjectionCause wants_ejection = EjectionCause::kNone;
};

HealthChange apply_probe(HealthState& state, const ProbeResult& result,
                         const HealthOptions& options, TimePoint now);
HealthChange apply_request_failure(HealthState& state, RequestFailure failure,
                                   const HealthOptions& options, TimePoint now);
void apply_request_success(HealthState& state);
// A new connection of a request was taken and answered on: refusals before it are no row any more.
void apply_connection_answered(HealthState& state);

// The replica said that it is shutting down: not usable until a probe has failed and a later one
// passed, or 30 s have passed.
void apply_leaving(HealthState& state, TimePoint now);

// Ejects for options.ejection times the number of ejections close to each other, at most
// max_ejection. Two are close when the first ended less than max_ejection before the second.
void eject(HealthState& state, EjectionCause cause, const HealthOptions& options, TimePoint now);

// Why it may not be given requests, for a person; empty where it may.
std::string why_unusable(const HealthState& state, TimePoint now);

}  // namespace pointsman
