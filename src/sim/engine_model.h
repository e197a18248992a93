#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "sim/engine_config.h"
#include "sim/kv_model.h"

namespace pointsman::sim {

using RequestId = std::uint64_t;

// What an engine is asked to do. The answer's length and contents are known in advance, so that
// the blocks an answer fills can be found again by the next turn of the conversation.
struct EngineRequest {
  RequestId id = 0;                 // unique among the requests of this engine
  std::uint32_t prompt_tokens = 1;  // at least 1
  std::uint32_t output_tokens = 1;  // at least 1
  // One hash per *full* block of prompt and answer together, in order. May be shorter: blocks
  // beyond it are never found again.
  std::vector<BlockHash> chain;
};

// Work of one step, in the units of the cost model.
struct StepWork {
  std::uint64_t tokens = 0;          // scheduled, prefill and decode
  std::uint64_t decode_context = 0;  // KV tokens that the step's decodes read
  std::uint64_t sequences = 0;       // requests in the step
  std::uint64_t prefill_pairs = 0;   // query-context pairs of the step's prefill chunks
};

// Duration of a step in seconds:
//   t0 + max(tw, tc·tokens) + tkv·decode_context + tseq·sequences + tc·ra·prefill_pairs
[[nodiscard]] double step_seconds(const EngineConfig& config, const StepWork& work);

enum class EngineEventKind : std::uint8_t {
  kToken,     // a token is out; the first one ends the prefill
  kFinished,  // the token just reported was the last
};

struct EngineEvent {
  EngineEventKind kind = EngineEventKind::kToken;
  RequestId request = 0;
  std::uint32_t token = 0;   // 0 for the first token of the answer
  std::uint32_t cached = 0;  // prompt tokens the request found in the cache at first admission
};

// What the engine's metrics would say at this moment. Counters only grow.
struct EngineState {
  std::size_t running = 0;
  std::size_t waiting = 0;
  double kv_usage = 0;               // in [0, 1]; cached but free blocks are free
  std::uint64_t prefix_queries = 0;  // prompt tokens looked up at first admission
  std::uint64_t prefix_hits = 0;     // of these, found
  std::uint64_t preemptions = 0;
  std::uint64_t steps = 0;
  std::uint64_t generated_tokens = 0;
  Duration busy{};  // time spent in steps
};

// A continuous-batching engine in discrete steps, by the published rules of vLLM V1's scheduler:
//
// - Requests that run come first, oldest first: one token each, or the next chunk of a prompt.
// - Then requests are admitted first come, first served, while the token budget, max_num_seqs and
//   the free blocks allow. A prompt longer than what is left of the budget is cut there, and
//   nothing behind it is admitted until it is through: long prompts hold up the queue.
// - A prefix found in the cache is not computed again, but at least the last token is: at most
//   (tokens - 1) / 16 blocks are taken.
// - Where a running request finds no free block, the youngest running one is preempted: it gives
//   up its blocks, moves to the head of the queue, and later computes everything again. A step
//   with a preemption admits nothing.
//
// Time comes from the driver, which may be a simulator's event queue or a wall clock:
//
//   while (std::optional<Duration> took = engine.begin_step()) {
//     (wait until *took has passed; requests may be submitted and cancelled meanwhile)
//     for (const EngineEvent& event : engine.finish_step()) ...
//   }
//
// Deterministic: the same calls give the same events. Not thread-safe.
class EngineModel {
 public:
  explicit EngineModel(const EngineConfig& config);

  // Whether a request of that size can ever run alone. Where not, it must not be submitted.
  [[nodiscard]] bool fits(std::uint64_t prompt_tokens, std::uint64_t output_tokens) const {
    return prompt_tokens + output_tokens <= config_.capacity_tokens();
  }

  // Queues a request. It is considered from the next begin_step() on.
  void submit(EngineRequest request);

  // Forgets a request and frees its blocks, queued, running or in the middle of a step; its events
  // of that step are not reported. False where the request is not known, or has finished.
  bool cancel(RequestId id);

  // Schedules a step, and says how long it takes. Nothing where there is nothing to do: the driver
  // then waits for the next submit(). Not again before finish_step().
  [[nodiscard]] std::optional<Duration> begin_step();

  // Ends the step and returns what it produced, oldest request first. Valid until the next call.
  const std::vector<EngineEvent>& finish_step();

  [[nodiscard]] bool in_step() const { return in_step_; }
  [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
  // Work of the step under way, or of the last one.
  [[nodiscard]] const StepWork& step_work() const { return work_; }

  [[nodiscard]] EngineState state() const;
  [[nodiscard]] const EngineConfig& config() const { return config_; }
  [[nodiscard]] const KvModel& kv() const { return kv_; }

 private:
  struct Request {
    EngineRequest spec;
    std::uint32_t generated = 0;
    std::uint32_t computed = 0;   // tokens with KV entries
    std::uint32_t scheduled = 0;  // tokens of the step under way
    std::uint32_t published = 0;  // leading blocks offered to the prefix cache
    std::optional<std::uint32_t> cached;
    std::vector<BlockId> blocks;

    // Tokens known so far; all but the newest answer token have to be computed to get the next.
    [[nodiscard]] std::uint32_t known() const { return spec.prompt_tokens + generated; }
  };

  bool schedule_running();  // false after a preemption
  void schedule_waiting();
  void schedule(Request& request, std::uint32_t tokens);
  void preempt_youngest();

  EngineConfig config_;
  KvModel kv_;
  std::unordered_map<RequestId, Request> requests_;
  std::vector<RequestId> running_;  // oldest admission first
  std::deque<RequestId> waiting_;
  std::uint32_t budget_ = 0;
  bool in_step_ = false;
  StepWork work_;
  std::vector<EngineEvent> events_;
  EngineState counters_;
};

}  // namespace pointsman::sim
