#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "sim/content.h"
#include "sim/event_queue.h"
#include "sim/scenario.h"
#include "sim/trace_reader.h"
#include "sim/workload.h"

namespace pointsman::sim {

// A request that arrives.
struct Arrival {
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  std::uint64_t conversation = 0;  // its number; a trace's requests are one each
  std::uint64_t session_key = 0;
  std::uint32_t turn = 0;  // 0 for the first of its conversation
  std::uint32_t waiting =
      kNobody;  // who waits for the answer, to be told by answered() or failed()
  std::uint32_t prompt_tokens = 1;
  std::uint32_t output_tokens = 1;
  std::uint32_t max_tokens = 1;
  std::uint32_t known_tokens = 0;  // leading prompt tokens that an earlier request had as well
  Content content;                 // of prompt and answer
};

// What a run's clients send and when: the same for the same seed, except that those who wait for
// answers send when they have them.
class Traffic {
 public:
  // `longest` is what prompt and answer of a request may have together. Throws
  // std::invalid_argument where a trace cannot be read.
  Traffic(const Scenario& scenario, std::uint64_t seed, std::uint32_t longest, TimePoint start);

  // For how long a trace or a number of requests at the scenario's rate lasts; nothing of a closed
  // loop, whose answers decide.
  [[nodiscard]] std::optional<Duration> length() const;
  // About as many requests will come in `window`; what memory may be reserved for.
  [[nodiscard]] std::size_t expected(Duration window) const;

  // Of a trace, what was not taken as it is there.
  struct TraceCounts {
    std::uint64_t left_out = 0;  // lines without tokens
    std::uint64_t late = 0;      // lines out of order
    std::uint64_t cut = 0;       // requests too long for the engines, so far
  };
  [[nodiscard]] const std::optional<TraceCounts>& trace_counts() const { return trace_counts_; }
  // Of generated conversations, what the engines are too small for, so far.
  struct CutCounts {
    std::uint64_t requests = 0;       // first turns whose prompt or answer was made shorter
    std::uint64_t conversations = 0;  // that ended before a turn that would not fit
  };
  [[nodiscard]] const CutCounts& cut_counts() const { return cut_counts_; }

  // When take() is to be called next; TimePoint::max() where nobody will send before an answer.
  [[nodiscard]] TimePoint next_time() const {
    return queue_.empty() ? TimePoint::max() : queue_.next_time();
  }
  // What arrives at next_time(). `arrival` is reused.
  void take(Arrival& arrival);

  // The answer came, or the request failed for good. Who failed in a closed loop begins a new
  // conversation a second later at the earliest.
  void answered(std::uint32_t waiting, TimePoint at);
  void failed(std::uint32_t waiting, TimePoint at) {
    end_conversation(waiting, at, std::chrono::seconds(1));
  }

 private:
  enum class Kind : std::uint8_t { kConversation, kTurn, kTrace };

  struct Conversation {
    ConversationScript script;
    Turn next;
    std::uint64_t number = 0;
    std::uint32_t system_prompt = SystemPrompts::kNone;
    std::uint32_t system_tokens = 0;
    std::uint32_t context = 0;  // tokens said so far, the system prompt included
    std::uint32_t turn = 0;     // number of the next turn
    bool is_cut = false;        // the first turn was longer
  };

  [[nodiscard]] bool is_closed() const { return spec_.arrivals.kind == ArrivalKind::kClosed; }
  void schedule_conversation(TimePoint now);
  // Returns its place.
  std::uint32_t begin_conversation();
  void end_conversation(std::uint32_t place, TimePoint at, Duration least_pause = {});
  void take_turn(std::uint32_t place, TimePoint now, Arrival& arrival);
  void take_traced(Arrival& arrival);
  [[nodiscard]] TraceReader open_trace() const;
  void scan_trace();
  void read_trace();

  const Scenario& spec_;
  std::uint64_t seed_;
  std::uint32_t longest_;
  TimePoint start_;
  EventQueue<Kind> queue_;

  SystemPrompts system_prompts_;
  std::vector<bool> system_prompt_seen_;
  Rng gaps_;
  double mean_gap_s_;
  std::uint64_t begun_ = 0;  // conversations
  std::vector<Conversation> conversations_;
  std::vector<std::uint32_t> free_;
  CutCounts cut_counts_;

  std::optional<TraceReader> trace_;
  std::optional<TraceCounts> trace_counts_;
  TraceRequest traced_;  // the next one
  std::uint64_t trace_left_ = 0;
  Duration trace_begin_{};  // of the first request that is not skipped, by the trace's clock
  Duration trace_length_{};
  std::unordered_map<std::uint64_t, std::uint32_t> trace_seen_;  // by run: how much of it
};

}  // namespace pointsman::sim
