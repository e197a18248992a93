#include "sim/traffic.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "config/section_keys.h"
#include "sim/chance.h"

namespace pointsman::sim {

Traffic::Traffic(const Scenario& scenario, std::uint64_t seed, std::uint32_t longest,
                 TimePoint start)
    : spec_(scenario),
      seed_(seed),
      longest_(longest),
      start_(start),
      system_prompts_(scenario.workload, seed),
      system_prompt_seen_(system_prompts_.count(), false),
      gaps_(mixed(seed ^ 0x4152'5249'5645ULL)),
      mean_gap_s_(scenario.workload.expected_turns() / scenario.arrivals.rate) {
  switch (scenario.arrivals.kind) {
    case ArrivalKind::kSemiOpen:
    case ArrivalKind::kOpen:
      schedule_conversation(start);
      break;
    case ArrivalKind::kClosed:
      for (std::uint32_t i = 0; i < scenario.arrivals.users; ++i) {
        queue_.put(start, Kind::kTurn, begin_conversation());
      }
      break;
    case ArrivalKind::kTrace:
      scan_trace();
      trace_ = open_trace();
      read_trace();
      break;
  }
}

std::optional<Duration> Traffic::length() const {
  if (trace_) return trace_length_;
  if (is_closed()) return std::nullopt;
  const double seconds = spec_.measure.requests / spec_.arrivals.rate;
  if (seconds > kLongestRunSeconds) {
    throw std::invalid_argument("measure.requests: at arrivals.rate " +
                                to_text(spec_.arrivals.rate) + " they take " + to_text(seconds) +
                                " s, and a run may last " + to_text(kLongestRunSeconds) + " s");
  }
  return from_seconds(seconds);
}

std::size_t Traffic::expected(Duration window) const {
  if (trace_) return trace_left_ + 1;
  return static_cast<std::size_t>(1.05 * spec_.arrivals.rate * to_seconds(window)) + 100;
}

void Traffic::take(Arrival& arrival) {
  const auto event = queue_.take();
  switch (event.kind) {
    case Kind::kConversation:
      schedule_conversation(event.at);
      take_turn(begin_conversation(), event.at, arrival);
      break;
    case Kind::kTurn:
      take_turn(event.subject, event.at, arrival);
      break;
    case Kind::kTrace:
      take_traced(arrival);
      break;
  }
}

void Traffic::schedule_conversation(TimePoint now) {
  const double gap = draw_gamma(gaps_, mean_gap_s_, spec_.arrivals.cv);
  // What comes after the end of the longest run does not come.
  queue_.put(now + from_seconds(std::min(gap, 2 * kLongestRunSeconds)), Kind::kConversation, 0);
}

std::uint32_t Traffic::begin_conversation() {
  const std::uint64_t number = begun_++;
  const ConversationScript script(spec_.workload, seed_, number);
  std::uint32_t place = 0;
  if (free_.empty()) {
    place = static_cast<std::uint32_t>(conversations_.size());
    conversations_.push_back({.script = script, .next = {}});
  } else {
    place = free_.back();
    free_.pop_back();
    conversations_[place] = {.script = script, .next = {}};
  }
  Conversation& conversation = conversations_[place];
  conversation.number = number;
  conversation.next = conversation.script.next(spec_.workload);
  conversation.system_prompt = system_prompts_.of_conversation(number);
  // What fits no engine at all is cut.
  const auto cut = [&conversation](std::uint32_t tokens, std::uint32_t most) {
    conversation.is_cut = conversation.is_cut || tokens > most;
    return std::min(tokens, most);
  };
  if (conversation.system_prompt != SystemPrompts::kNone) {
    conversation.system_tokens =
        cut(system_prompts_.tokens(conversation.system_prompt), longest_ / 2);
    conversation.context = conversation.system_tokens;
  }
  Turn& turn = conversation.next;
  turn.output_tokens = cut(turn.output_tokens, longest_ / 4);
  turn.new_tokens = cut(turn.new_tokens, longest_ - conversation.context - turn.output_tokens);
  return place;
}

void Traffic::take_turn(std::uint32_t place, TimePoint now, Arrival& arrival) {
  Conversation& conversation = conversations_[place];
  const Turn& turn = conversation.next;
  if (conversation.turn == 0 && conversation.is_cut) ++cut_counts_.requests;
  arrival.conversation = conversation.number;
  arrival.session_key = mixed(conversation.number + 1);
  arrival.turn = conversation.turn;
  arrival.waiting = place;
  arrival.prompt_tokens = conversation.context + turn.new_tokens;
  arrival.output_tokens = turn.output_tokens;
  arrival.max_tokens = turn.max_tokens;
  arrival.known_tokens = conversation.turn == 0 ? 0 : conversation.context;
  arrival.content.clear();
  if (conversation.system_tokens > 0) {
    arrival.content.push_back({system_run(conversation.system_prompt), conversation.system_tokens});
    if (conversation.turn == 0 && system_prompt_seen_[conversation.system_prompt]) {
      arrival.known_tokens = conversation.system_tokens;
    }
    system_prompt_seen_[conversation.system_prompt] = true;
  }
  conversation.context = arrival.prompt_tokens + arrival.output_tokens;
  arrival.content.push_back({conversation_run(conversation.number), conversation.context});
  ++conversation.turn;
  if (spec_.arrivals.kind == ArrivalKind::kOpen) {
    arrival.waiting = Arrival::kNobody;
    answered(place, now);
  }
}

void Traffic::answered(std::uint32_t waiting, TimePoint at) {
  Conversation& conversation = conversations_[waiting];
  if (conversation.script.turns_left() == 0) {
    end_conversation(waiting, at);
    return;
  }
  conversation.next = conversation.script.next(spec_.workload);
  const Turn& turn = conversation.next;
  if (std::uint64_t{conversation.context} + turn.new_tokens + turn.output_tokens > longest_) {
    ++cut_counts_.conversations;
    end_conversation(waiting, at);
    return;
  }
  queue_.put(at + from_seconds(turn.think_s), Kind::kTurn, waiting);
}

void Traffic::end_conversation(std::uint32_t place, TimePoint at, Duration least_pause) {
  free_.push_back(place);
  if (!is_closed()) return;
  const std::uint32_t next = begin_conversation();
  const Duration pause = from_seconds(conversations_[next].next.think_s);
  queue_.put(at + std::max(pause, least_pause), Kind::kTurn, next);
}

TraceReader Traffic::open_trace() const {
  Result<TraceReader> reader = TraceReader::open(spec_.arrivals.trace);
  if (!reader) throw std::invalid_argument(reader.error().message);
  TraceRequest skipped;
  for (std::uint32_t i = 0; i < spec_.arrivals.trace_skip; ++i) {
    const Result<bool> more = reader->next(skipped);
    if (!more) throw std::invalid_argument(more.error().message);
    if (!*more) break;
  }
  return std::move(*reader);
}

// How many requests there are, and for how long they come.
void Traffic::scan_trace() {
  TraceReader reader = open_trace();
  const std::uint64_t left_out = reader.left_out();
  const std::uint64_t late = reader.late();
  const std::uint64_t most = spec_.arrivals.trace_requests > 0
                                 ? spec_.arrivals.trace_requests
                                 : std::numeric_limits<std::uint64_t>::max();
  while (trace_left_ < most) {
    const Result<bool> more = reader.next(traced_);
    if (!more) throw std::invalid_argument(more.error().message);
    if (!*more) break;
    if (trace_left_ == 0) trace_begin_ = traced_.at;
    ++trace_left_;
  }
  if (trace_left_ == 0) {
    throw std::invalid_argument(
        spec_.arrivals.trace + ": " +
        reader.none_text(spec_.arrivals.trace_skip > 0 ? " behind those skipped" : ""));
  }
  trace_counts_ = {.left_out = reader.left_out() - left_out, .late = reader.late() - late};
  // The end lies behind the last request.
  const double seconds = to_seconds(traced_.at - trace_begin_) / spec_.arrivals.trace_speed;
  if (seconds > kLongestRunSeconds) {
    throw std::invalid_argument(spec_.arrivals.trace + ": at arrivals.trace_speed " +
                                to_text(spec_.arrivals.trace_speed) + " it takes " +
                                to_text(seconds) + " s, and a run may last " +
                                to_text(kLongestRunSeconds) + " s");
  }
  trace_length_ = from_seconds(seconds) + Duration(1);
}

void Traffic::read_trace() {
  if (trace_left_ == 0) return;
  --trace_left_;
  const Result<bool> more = trace_->next(traced_);
  if (!more) throw std::invalid_argument(more.error().message);
  if (!*more) return;
  const Duration at =
      from_seconds(to_seconds(traced_.at - trace_begin_) / spec_.arrivals.trace_speed);
  queue_.put(start_ + at, Kind::kTrace, 0);
}

void Traffic::take_traced(Arrival& arrival) {
  arrival.conversation = begun_++;
  arrival.session_key = traced_.session_key;
  arrival.waiting = Arrival::kNobody;
  // What fits no engine at all is cut.
  arrival.prompt_tokens = traced_.prompt_tokens;
  arrival.output_tokens = traced_.output_tokens;
  if (std::uint64_t{arrival.prompt_tokens} + arrival.output_tokens > longest_) {
    ++trace_counts_->cut;
    arrival.output_tokens = std::min(arrival.output_tokens, longest_ / 4);
    arrival.prompt_tokens = std::min(arrival.prompt_tokens, longest_ - arrival.output_tokens);
  }
  arrival.max_tokens = traced_.max_tokens;
  arrival.known_tokens = 0;
  arrival.content = traced_.content;
  std::uint32_t begin = 0;
  bool leads = true;
  for (ContentRun& run : arrival.content) {
    run.end = std::min(run.end, arrival.prompt_tokens + arrival.output_tokens);
    if (is_unique(run.id)) break;  // and so is all that follows
    std::uint32_t& seen = trace_seen_[run.id];
    if (leads && seen > begin) {
      arrival.known_tokens = std::min({seen, run.end, arrival.prompt_tokens});
    }
    leads = leads && seen >= run.end;
    seen = std::max(seen, run.end);
    begin = run.end;
  }
  arrival.turn = arrival.known_tokens > 0 ? 1 : 0;
  read_trace();
}

}  // namespace pointsman::sim
