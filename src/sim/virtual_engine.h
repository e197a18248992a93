#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "sim/engine_model.h"

namespace pointsman::sim {

enum class EngineReportKind : std::uint8_t {
  kFirstToken,  // the prefill is through
  kFinished,    // the last token is out
};

struct EngineReport {
  EngineReportKind kind = EngineReportKind::kFirstToken;
  RequestId request = 0;
  TimePoint at;
  std::uint32_t cached = 0;  // prompt tokens the request found in the cache at first admission
};

// What has become of a run in the prefix cache: so many of its blocks are findable from then on.
struct KvChange {
  TimePoint at;
  ChainRun run;

  friend bool operator==(const KvChange&, const KvChange&) = default;
};

// An engine in virtual time. Each step begins when the one before ends; an idle engine's begins
// when a request comes. Phases in which every request decodes are not run step by step but in
// closed form, with the same result in every report and reading: a phase costs about what a step
// does, however long it is.
//
// The driver keeps the time, which never goes back: before any call with `now`, advance(now) must
// have been called. Deterministic. Not thread-safe.
class VirtualEngine {
 public:
  explicit VirtualEngine(const EngineConfig& config);

  // Whether a request of that size can ever run. Where not, it must not be submitted.
  [[nodiscard]] bool fits(std::uint64_t prompt_tokens, std::uint64_t output_tokens) const {
    return engine_.fits(prompt_tokens, output_tokens);
  }

  // Queues a request, for the step after the one under way at the earliest.
  void submit(const EngineRequest& request, TimePoint now);

  // Forgets a request. False where it is not known, or has finished.
  bool cancel(RequestId id, TimePoint now);

  // The engine's process dies and is back at once: every request is lost, without a report, and
  // the cache is empty.
  void clear(TimePoint now);

  // Steps after the one under way take `factor` > 0 times as long as configured.
  void slow_down(double factor, TimePoint now);

  // Runs all steps that end up to and including `until`. Returns what they brought, in the order of
  // time; valid until the next call.
  std::span<const EngineReport> advance(TimePoint until);

  // When advance() is to be called next, unless something is submitted or cancelled before: not
  // later than the next report, though the call may bring none. Nothing where the engine is idle.
  [[nodiscard]] std::optional<TimePoint> next_event() {
    if (!engine_.in_step()) begin();
    if (!engine_.in_step()) return std::nullopt;
    return outside(end_of(planned_));
  }

  // Readings at `now`. Constant time.
  [[nodiscard]] EngineState state(TimePoint now) const;

  // Time spent in steps up to `now`; of the step under way what has passed of it.
  [[nodiscard]] EngineTotal busy(TimePoint now) const;

  // How many leading blocks of `chain` are findable at `now`.
  [[nodiscard]] std::uint32_t cached_blocks(std::span<const ChainRun> chain, TimePoint now);

  // From now on, notes what the prefix cache gains and loses.
  void note_kv_changes() {
    notes_kv_changes_ = true;
    engine_.note_kv_changes();
  }
  // What has been noted since the last call, in the order of time; valid until the next call. As in
  // the engine, a prefill's blocks are findable from the beginning of the step that computes them,
  // and what they push out is gone then. What decodes fill and push out within a phase is noted at
  // its end.
  [[nodiscard]] std::span<const KvChange> take_kv_changes();

  [[nodiscard]] const EngineModel& engine() const { return engine_; }

 private:
  void begin();
  void collect_kv_changes();
  // When something that ends then is seen from outside: rounded up, never before it happens.
  [[nodiscard]] TimePoint outside(EngineTime time) const {
    return origin_ + std::chrono::ceil<Duration>(time);
  }
  // Times past what fits, such as TimePoint::max(), become the last one that does.
  [[nodiscard]] EngineTime inside(TimePoint at) const {
    return std::min(at - origin_, std::chrono::floor<Duration>(EngineTime::max()));
  }
  void restart_count(TimePoint now);
  void move_origin();
  // When the first `steps` steps of the phase are over.
  [[nodiscard]] EngineTime end_of(std::uint32_t steps) const {
    const std::int64_t count = steps;
    return began_ + count * first_ + (count * (count - 1) / 2) * growth_;
  }
  [[nodiscard]] std::uint32_t steps_done(TimePoint now) const;
  void catch_up(TimePoint now);

  EngineModel engine_;
  // Where the engine's own time counts from: not long before began_, and whole nanoseconds away
  // from every origin before it, so that nothing is rounded.
  TimePoint origin_{};
  // The phase: so many equal steps, of which the first began at began_ and takes first_.
  EngineTime began_{};
  EngineTime first_{};
  EngineTime growth_{};
  std::uint32_t planned_ = 1;
  EngineTotal cut_{};  // what was left of steps that crashes ended
  std::vector<EngineReport> reports_;
  bool notes_kv_changes_ = false;
  std::vector<KvChange> kv_changes_;
  std::vector<KvChange> taken_kv_changes_;
};

}  // namespace pointsman::sim
