#include "sim/virtual_engine.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pointsman::sim {
namespace {

// A phase is cut where it would take longer, and the origin of time then follows: so no time of an
// engine comes near what 64 bits hold.
constexpr EngineTime kLongestPhase = std::chrono::seconds(1'000'000);
constexpr EngineTime kOriginFollows = std::chrono::seconds(1'000);

}  // namespace

VirtualEngine::VirtualEngine(const EngineConfig& config) : engine_(config) {}

void VirtualEngine::submit(const EngineRequest& request, TimePoint now) {
  if (engine_.in_step()) {
    planned_ = steps_done(now) + 1;
  } else {
    restart_count(now);
  }
  engine_.submit(request);
}

bool VirtualEngine::cancel(RequestId id, TimePoint now) {
  catch_up(now);
  planned_ = 1;
  return engine_.cancel(id);
}

void VirtualEngine::clear(TimePoint now) {
  catch_up(now);
  if (engine_.in_step()) cut_ += end_of(1) - inside(now);
  engine_.clear();
  restart_count(now);
}

void VirtualEngine::slow_down(double factor, TimePoint now) {
  catch_up(now);
  planned_ = 1;
  engine_.slow_down(factor);
}

std::span<const EngineReport> VirtualEngine::advance(TimePoint until) {
  reports_.clear();
  EngineTime limit = inside(until);
  for (;;) {
    if (!engine_.in_step()) begin();
    const EngineTime end = end_of(planned_);
    if (!engine_.in_step() || end > limit) return reports_;
    engine_.skip_steps(planned_ - 1);
    for (const EngineEvent& event : engine_.finish_step(EngineTokens::kFirstOnly)) {
      const auto kind = event.kind == EngineEventKind::kToken ? EngineReportKind::kFirstToken
                                                              : EngineReportKind::kFinished;
      reports_.push_back({kind, event.request, outside(end), event.cached});
    }
    began_ = end;
    if (began_ > kOriginFollows) {
      move_origin();
      limit = inside(until);
    }
  }
}

EngineState VirtualEngine::state(TimePoint now) const {
  EngineState state = engine_.state();
  if (!engine_.in_step()) return state;
  const std::uint32_t done = steps_done(now);
  if (done == 0) return state;
  state.steps += done;
  state.generated_tokens += std::uint64_t{done} * state.running;
  // Of the steps after the first, the one under way included.
  state.busy += end_of(done + 1) - end_of(1);
  const KvModel& kv = engine_.kv();
  state.kv_usage = static_cast<double>(kv.referenced() + engine_.blocks_of_further_steps(done)) /
                   static_cast<double>(kv.block_count());
  return state;
}

EngineTotal VirtualEngine::busy(TimePoint now) const {
  const EngineTotal begun = state(now).busy - cut_;
  if (!engine_.in_step()) return begun;
  return begun - (end_of(steps_done(now) + 1) - inside(now));
}

std::uint32_t VirtualEngine::cached_blocks(std::span<const ChainRun> chain, TimePoint now) {
  catch_up(now);
  return engine_.cached_blocks(chain);
}

std::span<const KvChange> VirtualEngine::take_kv_changes() {
  taken_kv_changes_.swap(kv_changes_);
  kv_changes_.clear();
  return taken_kv_changes_;
}

// Begins the next phase, if there is none and something to do.
void VirtualEngine::begin() {
  const std::optional<EngineTime> took = engine_.begin_step();
  if (notes_kv_changes_) collect_kv_changes();
  if (!took) return;
  first_ = *took;
  planned_ = engine_.count_equal_steps();
  growth_ = engine_.decode_growth();
  const auto longest = static_cast<double>(kLongestPhase.count());
  const auto duration = [this] {
    const auto steps = static_cast<double>(planned_);
    return steps * static_cast<double>(first_.count()) +
           steps * (steps - 1) / 2 * static_cast<double>(growth_.count());
  };
  while (planned_ > 1 && duration() > longest) planned_ /= 2;
}

// Nothing is under way, and nothing was at `now`.
void VirtualEngine::restart_count(TimePoint now) {
  origin_ = now;
  began_ = EngineTime{};
}

void VirtualEngine::move_origin() {
  const Duration whole = std::chrono::floor<Duration>(began_);
  origin_ += whole;
  began_ -= whole;
}

void VirtualEngine::collect_kv_changes() {
  const TimePoint at = outside(began_);
  for (const ChainRun& run : engine_.take_kv_changes()) kv_changes_.push_back({at, run});
}

// How many steps of the phase are over at `now`; fewer than planned.
std::uint32_t VirtualEngine::steps_done(TimePoint now) const {
  if (planned_ == 1) return 0;
  const EngineTime limit = inside(now);
  // The root of end_of(steps) = limit in floating point, and then the exact neighbour.
  const double passed = static_cast<double>((limit - began_).count());
  const double growth = static_cast<double>(growth_.count());
  const double linear = static_cast<double>(first_.count()) - growth / 2;
  const double root =
      2 * passed / (linear + std::sqrt(linear * linear + 2 * growth * std::max(passed, 0.0)));
  auto steps = static_cast<std::uint32_t>(std::clamp(root, 0.0, static_cast<double>(planned_ - 1)));
  while (steps > 0 && end_of(steps) > limit) --steps;
  while (steps + 1 < planned_ && end_of(steps + 1) <= limit) ++steps;
  return steps;
}

// Puts the engine itself into the step that is under way at `now`.
void VirtualEngine::catch_up(TimePoint now) {
  if (!engine_.in_step()) return;
  const std::uint32_t done = steps_done(now);
  if (done == 0) return;
  engine_.skip_steps(done);
  began_ = end_of(done);
  first_ += done * growth_;
  planned_ -= done;
}

}  // namespace pointsman::sim
