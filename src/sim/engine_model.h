#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/decode_group.h"
#include "sim/engine_config.h"
#include "sim/kv_model.h"
#include "sim/step_cost.h"

namespace pointsman::sim {

using RequestId = std::uint64_t;

// What an engine is asked to do. The answer's length and contents are known in advance, so that
// the blocks an answer fills can be found again by the next turn of the conversation.
struct EngineRequest {
  RequestId id = 0;                 // unique among the requests of this engine
  std::uint32_t prompt_tokens = 1;  // at least 1
  std::uint32_t output_tokens = 1;  // at least 1
  // The full blocks of prompt and answer together, in order. May be shorter: blocks beyond it are
  // never found again.
  std::span<const ChainRun> chain;
};

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

// Which tokens finish_step() reports.
enum class EngineTokens : std::uint8_t { kAll, kFirstOnly };

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
  EngineTotal busy{};  // duration of all steps that have begun
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
// Time comes from the driver, which may be VirtualEngine or a wall clock:
//
//   while (std::optional<EngineTime> took = engine.begin_step()) {
//     (wait until *took has passed; requests may be submitted and cancelled meanwhile)
//     for (const EngineEvent& event : engine.finish_step()) ...
//   }
//
// Deterministic: the same calls give the same events. No allocation once as many requests as now
// have been there before. Not thread-safe.
class EngineModel {
 public:
  explicit EngineModel(const EngineConfig& config);

  // Whether a request of that size can ever run alone. Where not, it must not be submitted.
  [[nodiscard]] bool fits(std::uint64_t prompt_tokens, std::uint64_t output_tokens) const {
    return prompt_tokens + output_tokens <= config_.capacity_tokens();
  }

  // Queues a request. It is considered from the next begin_step() on. The chain is copied.
  void submit(const EngineRequest& request);

  // Forgets a request and frees its blocks, queued, running or in the middle of a step; its events
  // of that step are not reported. False where the request is not known, or has finished. Looks
  // through all requests.
  bool cancel(RequestId id);

  // The engine's process dies and starts again: every request is lost and the cache is empty. The
  // counters go on.
  void clear();

  // Forgets what is cached. False, and nothing is done, while a request holds blocks.
  bool reset_cache();

  // Schedules a step, and says how long it takes. Nothing where there is nothing to do: the driver
  // then waits for the next submit(). Not again before finish_step().
  [[nodiscard]] std::optional<EngineTime> begin_step();

  // Ends the step and returns what it produced, oldest request first. Valid until the next call.
  const std::vector<EngineEvent>& finish_step(EngineTokens tokens = EngineTokens::kAll);

  // --- many steps at once

  // How many steps, from the one that has just begun on, are alike if nothing is submitted or
  // cancelled: each generates one more token for each running request, no request ends before the
  // last of these steps does, no block is missing, and nothing is admitted. At least 1. Step i of
  // them, counted from 0, takes `i · decode_growth()` longer than the one under way. To be asked
  // right after begin_step().
  [[nodiscard]] std::uint32_t count_equal_steps() const;
  [[nodiscard]] EngineTime decode_growth() const { return cost_.growth(decodes_.size()); }

  // Blocks that the `count` steps after the one under way will allocate; fewer than
  // count_equal_steps().
  [[nodiscard]] std::uint64_t blocks_of_further_steps(std::uint32_t count) const {
    return decodes_.blocks_for_further_steps(count);
  }

  // Goes on by `count` < count_equal_steps() steps, as if finish_step() and begin_step() had been
  // called so often. Requests submitted since the step under way began are not looked at.
  void skip_steps(std::uint32_t count);

  // Steps that begin from now on take `factor` > 0 times as long as configured.
  void slow_down(double factor) { cost_ = StepCost(config_, factor); }

  [[nodiscard]] bool in_step() const { return in_step_; }
  [[nodiscard]] bool idle() const { return running() == 0 && first_waiting_ == kNone; }
  // Work of the step under way, or of the last one.
  [[nodiscard]] const StepWork& step_work() const { return work_; }

  [[nodiscard]] EngineState state() const;
  [[nodiscard]] const EngineConfig& config() const { return config_; }
  // Its blocks are counted exactly; what is findable in it may lag behind, see cached_blocks().
  [[nodiscard]] const KvModel& kv() const { return kv_; }

  // How many leading blocks of `chain` a request could find.
  [[nodiscard]] std::uint32_t cached_blocks(std::span<const ChainRun> chain);
  // As KvModel's of the same names. Taking looks at each running request.
  void note_kv_changes() {
    if (config_.prefix_caching) kv_.note_changes();
  }
  [[nodiscard]] std::span<const ChainRun> take_kv_changes();

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Request {
    RequestId id = 0;
    std::uint32_t prompt = 0;
    std::uint32_t output = 0;
    std::uint32_t generated = 0;  // these three not while it decodes, see decodes_
    std::uint32_t computed = 0;   // tokens with KV entries
    std::uint32_t scheduled = 0;  // tokens of the step under way
    std::uint32_t cached = 0;     // at first admission
    std::uint32_t next_waiting = kNone;
    bool admitted = false;  // at least once
    bool deferred = false;  // see deferred_
    KvHolding blocks;

    // Tokens known so far; all but the newest answer token have to be computed to get the next.
    [[nodiscard]] std::uint32_t known() const { return prompt + generated; }
    // Blocks that the prefix cache may supply, since the last token has to be computed.
    [[nodiscard]] std::uint32_t hit_limit() const { return (known() - 1) / kBlockTokens; }
  };

  void schedule_decodes();
  void decode_one_by_one();
  void schedule_prefill_under_way();
  void schedule_waiting();
  void schedule(Request& request, std::uint32_t tokens);
  void preempt_youngest();
  void finish_decodes(EngineTokens tokens);
  void finish_prefills(EngineTokens tokens);
  void start_decode(std::uint32_t place);
  void defer_if_alone(std::uint32_t place);
  void stop_deferring(std::uint32_t place);
  void bring_up_to_date(std::size_t decode);
  void bring_all_up_to_date();
  void drop_decode(std::size_t decode);
  [[nodiscard]] std::size_t running() const { return decodes_.size() + prefills_.size(); }

  EngineConfig config_;
  StepCost cost_;
  KvModel kv_;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> unused_;
  // Running requests, oldest admission first: all that decode are older than those that prefill.
  // Of the latter only one can be there before a step, with the rest of its prompt; the others are
  // admitted by the step under way.
  DecodeGroup decodes_;
  std::vector<std::uint32_t> prefills_;
  // How many of decodes_ leave their blocks behind: the group as a whole allocates, and the request
  // is given its blocks, and they become findable, when somebody looks. Only where nobody else uses
  // the run that it fills. As long as one cannot, decodes go one by one.
  std::size_t deferred_ = 0;
  std::uint32_t first_waiting_ = kNone;
  std::uint32_t last_waiting_ = kNone;
  std::size_t waiting_ = 0;
  std::uint32_t budget_ = 0;
  bool in_step_ = false;
  // In the step under way a request was preempted or cancelled: the next step may admit others.
  bool disturbed_ = false;
  StepWork work_;
  EngineTime took_{};  // duration of the step under way, or of the last one
  std::vector<EngineEvent> events_;
  EngineState counters_;
};

}  // namespace pointsman::sim
