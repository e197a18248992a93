#include "runtime/health.h"

#include <algorithm>
#include <cmath>

namespace pointsman {
namespace {

constexpr Duration kLeaving = std::chrono::seconds(30);
constexpr int kRefusedUntilGone = 2;

using Phase = HealthState::Phase;

// One more new connection was refused.
void note_refused(HealthState& state, HealthChange& change) {
  if (++state.refused < kRefusedUntilGone || state.phase == Phase::kGone) return;
  // A replica that was never ready has no exchanges to cut.
  change.went_gone = state.phase != Phase::kUnknown;
  state.phase = Phase::kGone;
}

void probe_passed(HealthState& state, const HealthOptions& options, TimePoint now,
                  HealthChange& change) {
  state.probes_failed = 0;
  state.refused = 0;
  ++state.probes_passed;
  if (state.leaving && state.leaving_seen_down) state.leaving = false;
  if (state.ejection == EjectionCause::kRefused && state.ejected(now)) {
    state.ejected_until = now;
    state.faults = state.refused_faults = 0;
  }
  if (state.phase == Phase::kReady || state.probes_passed < options.successes_in) return;
  change.came_back = state.phase != Phase::kUnknown;
  state.phase = Phase::kReady;
}

void probe_failed(HealthState& state, const HealthOptions& options) {
  state.probes_passed = 0;
  ++state.probes_failed;
  if (state.leaving) state.leaving_seen_down = true;
  if (state.phase == Phase::kReady && state.probes_failed >= options.failures_out) {
    state.phase = Phase::kNotReady;
  }
}

}  // namespace

HealthChange apply_probe(HealthState& state, const ProbeResult& result,
                         const HealthOptions& options, TimePoint now) {
  HealthChange change;
  state.detail = result.detail;
  switch (result.kind) {
    case ProbeResult::Kind::kReady:
      probe_passed(state, options, now, change);
      break;
    case ProbeResult::Kind::kNotReady:
      // It takes connections again, and says what it lacks.
      if (state.phase == Phase::kGone) state.phase = Phase::kNotReady;
      [[fallthrough]];
    case ProbeResult::Kind::kTimedOut:
    case ProbeResult::Kind::kFailed:
      state.refused = 0;
      probe_failed(state, options);
      break;
    case ProbeResult::Kind::kRefused:
      probe_failed(state, options);
      note_refused(state, change);
      if (state.phase == Phase::kGone) state.gone_for = result.detail;
      break;
    case ProbeResult::Kind::kTimedOutServing:
      // Says neither that it is ready nor that it is not.
      state.refused = 0;
      break;
  }
  return change;
}

HealthChange apply_request_failure(HealthState& state, RequestFailure failure,
                                   const HealthOptions& options, TimePoint now) {
  HealthChange change;
  switch (failure) {
    case RequestFailure::kRefused:
      ++state.faults;
      ++state.refused_faults;
      note_refused(state, change);
      // The next probe tells which of the two.
      if (change.went_gone) state.gone_for = "connection refused or reset";
      break;
    case RequestFailure::kConnection:
      ++state.faults;
      break;
    case RequestFailure::kServerError:
      state.refused = 0;  // it took the connection
      ++state.own_5xx;
      break;
  }
  if (state.ejected(now)) return change;
  if (state.own_5xx >= options.own_5xx_out) {
    change.wants_ejection = EjectionCause::kServerError;
  } else if (state.faults >= options.faults_out) {
    change.wants_ejection =
        state.refused_faults == state.faults ? EjectionCause::kRefused : EjectionCause::kConnection;
  }
  return change;
}

void apply_request_success(HealthState& state) {
  state.faults = state.refused_faults = state.own_5xx = 0;
}

void apply_connection_answered(HealthState& state) {
  // A replica that is gone comes back by a probe alone.
  if (state.phase != Phase::kGone) state.refused = 0;
}

void apply_leaving(HealthState& state, TimePoint now) {
  if (!state.is_leaving(now)) state.leaving_seen_down = false;
  state.leaving = true;
  state.leaving_until = now + kLeaving;
}

void eject(HealthState& state, EjectionCause cause, const HealthOptions& options, TimePoint now) {
  const bool close =
      state.ejected_until != TimePoint{} && now - state.ejected_until < options.max_ejection;
  state.ejections = close ? state.ejections + 1 : 1;
  // Compared before multiplying: the product of a long row of ejections may not fit.
  const bool longest =
      state.ejections > options.max_ejection / std::max(options.ejection, Duration{1});
  state.ejected_until = now + (longest ? options.max_ejection : options.ejection * state.ejections);
  state.ejection = cause;
  state.faults = state.refused_faults = state.own_5xx = 0;
}

std::string why_unusable(const HealthState& state, TimePoint now) {
  const std::string detail = state.detail.empty() ? "" : ": " + state.detail;
  switch (state.phase) {
    case Phase::kUnknown:
      return state.detail.empty() ? "no probe has ended yet"
                                  : "has not passed a probe yet" + detail;
    case Phase::kGone:
      // Not the last probe's result, which may be from before the connections were refused.
      return state.gone_for.empty() ? "gone" : "gone: " + state.gone_for;
    case Phase::kNotReady:
      return "not ready" + detail;
    case Phase::kReady:
      break;
  }
  if (!state.awake) return "asleep";
  const auto rest = [now](TimePoint until) {
    return std::to_string(static_cast<long>(std::ceil(to_seconds(until - now)))) + " s more";
  };
  if (state.is_leaving(now)) return "shutting down, " + rest(state.leaving_until);
  if (state.ejected(now)) {
    const char* cause = state.ejection == EjectionCause::kServerError ? "its own 5xx answers"
                        : state.ejection == EjectionCause::kRefused   ? "refused connections"
                                                                      : "connection faults";
    return std::string("ejected for ") + cause + ", " + rest(state.ejected_until);
  }
  return "";
}

}  // namespace pointsman
