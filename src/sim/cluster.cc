#include "sim/cluster.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/balancer.h"
#include "sim/chance.h"
#include "sim/content.h"
#include "sim/event_queue.h"
#include "sim/load_meter.h"
#include "sim/prefix_sources.h"
#include "sim/request_log.h"
#include "sim/trace_reader.h"
#include "sim/virtual_engine.h"

namespace pointsman::sim {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr TimePoint kForever = TimePoint::max();

enum class EventKind : std::uint8_t {
  kConversation,  // the next conversation arrives
  kTurn,          // of a conversation
  kTrace,         // the trace's next request
  kEngine,        // a first token or an end at a replica
  kPoll,          // by a balancer
  kReports,       // arrive at a balancer
  kExchange,      // of the balancers' charges
  kSample,
  kWindowBegins,
  kArrivalsEnd,
  kFault,
};

class Cluster {
 public:
  Cluster(const Scenario& scenario, const PolicySpec& policy, const Registry& registry,
          std::uint64_t seed, RunLog* log);

  RunResult run();
  // Completions per second of the measured time.
  [[nodiscard]] double completion_rate() const;

 private:
  struct Conversation {
    ConversationScript script;
    Turn next;
    std::uint64_t number = 0;
    std::uint32_t system_prompt = SystemPrompts::kNone;
    std::uint32_t system_tokens = 0;
    std::uint32_t context = 0;  // tokens said so far, the system prompt included
    std::uint32_t turn = 0;     // number of the next turn
  };

  // A request on its way. Its place is its id at the engine.
  struct Flight {
    std::uint64_t number = 0;
    TimePoint arrived{};
    TimePoint first_token{};
    Charge charge;
    std::uint64_t conversation_number = 0;
    std::uint64_t session_key = 0;
    std::uint32_t conversation = kNone;  // whose next turn waits for this one
    std::uint32_t turn = 0;
    std::uint32_t balancer = 0;
    ReplicaIndex replica = kNoReplica;
    std::uint32_t prompt_tokens = 0;
    std::uint32_t output_tokens = 0;
    std::uint32_t max_tokens = 0;
    std::uint32_t known_tokens = 0;  // that an earlier request had as well
    std::uint32_t cached_tokens = 0;
    std::uint32_t predicted_tokens = 0;
    bool measured = false;
    bool lost_once = false;
    Content content;
  };

  // --- the workload
  void schedule_conversation();
  void begin_conversation();
  void send_turn(std::uint32_t place);
  // A flight for a request that arrives now.
  std::uint32_t new_flight();
  // How many requests the trace has, and for how long they come. Then the first is read.
  void open_trace();
  void read_trace();
  void send_traced();
  void launch(std::uint32_t place);
  // The turn was answered (or, where nobody waits, sent) at `at`: the next one follows.
  void continue_conversation(std::uint32_t place, TimePoint at);
  void end_conversation(std::uint32_t place, TimePoint at);
  [[nodiscard]] std::uint64_t requests_wanted() const { return scenario_.measure.requests; }

  // --- the balancers
  void send(std::uint32_t place, std::span<const ReplicaIndex> excluded);
  void poll(Balancer& balancer);
  void poll_round(std::uint32_t number);
  void exchange();
  [[nodiscard]] Signals signals_of(ReplicaIndex replica, Duration max_age);

  // --- the engines
  // Runs the replica up to now, and tells of what it has brought.
  void advance(ReplicaIndex replica);
  void first_token(RequestId request, TimePoint at, std::uint32_t cached_tokens);
  void finished(RequestId request, TimePoint at);
  void schedule_engine(ReplicaIndex replica);
  void fail(std::uint32_t place, TimePoint at);

  // --- measures
  void begin_window();
  void end_window();
  void sample();
  void strike(const FaultSpec& fault);
  void rebuild_view();
  void close(std::uint32_t place, TimePoint at, bool failed);
  // Requests in flight per second, over one pool or all of them.
  [[nodiscard]] double growth(std::size_t pool) const;
  [[nodiscard]] bool outgrew(std::size_t pool, double seconds) const;

  [[nodiscard]] bool is_closed() const {
    return scenario_.arrivals.kind == ArrivalKind::kClosed &&
           scenario_.measure.length <= Duration{};
  }

  struct Replica {
    bool alive = true;
    bool reports = true;
    TimePoint scheduled = kForever;  // of its entry in the queue
    std::uint32_t version = 0;       // of that entry
    EngineTime busy_before{};        // the window
  };

  const Scenario& scenario_;
  const std::uint64_t seed_;
  RunLog* log_;
  EventQueue<EventKind> queue_;
  TimePoint now_ = kRunBegin;
  TimePoint arrivals_end_ = kForever;

  SystemPrompts system_prompts_;
  std::vector<bool> system_prompt_seen_;
  Rng arrivals_;
  double gap_mean_ = 0;
  std::uint64_t conversations_begun_ = 0;
  std::vector<Conversation> conversations_;
  std::vector<std::uint32_t> free_conversations_;
  std::uint32_t longest_ = 0;  // prompt and answer together
  std::optional<TraceReader> trace_;
  TraceRequest traced_;  // the next one
  std::uint64_t trace_left_ = 0;
  Duration trace_length_{};
  std::unordered_map<std::uint64_t, std::uint32_t> trace_seen_;  // by run: how much of it

  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  std::uint64_t in_flight_ = 0;
  std::uint64_t sent_ = 0;

  std::vector<VirtualEngine> engines_;
  std::vector<Replica> replicas_;
  FleetView view_;
  std::unique_ptr<SharedIndex> shared_index_;
  std::unique_ptr<ExactIndex> exact_index_;
  std::vector<Balancer> balancers_;
  Needs needs_;
  Features features_;
  std::vector<BlockHash> blocks_;
  std::vector<ChainRun> chain_;

  bool measuring_ = false;
  RequestLog requests_;
  LoadMeter meter_;
  Duration sample_interval_{};
  std::uint64_t samples_ = 0;
  double kv_sum_ = 0;
  // Of each pool by its place in the view: requests in flight at each sample, and requests sent
  // there within the window.
  std::vector<std::vector<double>> backlogs_;
  std::vector<std::uint64_t> sent_to_pool_;
  EngineTime busy_{};
  std::uint64_t completions_ = 0;  // within the window
  std::uint64_t arrivals_measured_ = 0;
  std::uint64_t prompt_sum_ = 0;
  std::uint64_t cached_sum_ = 0;
  std::uint64_t known_sum_ = 0;
  std::uint64_t predicted_sum_ = 0;
  std::uint64_t follow_ups_ = 0;
  std::uint64_t valve_openings_ = 0;
  std::uint64_t all_saturated_ = 0;
  std::uint64_t fallbacks_ = 0;
  std::uint64_t retried_ = 0;
  std::uint64_t failed_ = 0;
};

std::vector<std::unique_ptr<Pipeline>> build_pipelines(const Registry& registry,
                                                       const PolicySpec& policy,
                                                       std::size_t pools) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (std::size_t i = 0; i < pools; ++i) {
    Result<std::unique_ptr<Pipeline>> built = registry.build(policy);
    if (!built) throw std::invalid_argument(built.error().message);
    pipelines.push_back(std::move(*built));
  }
  return pipelines;
}

constexpr PoolPurpose kPurposes[] = {PoolPurpose::kGeneral, PoolPurpose::kLongContext,
                                     PoolPurpose::kLongGeneration};

std::string_view pool_name(PoolPurpose purpose) {
  switch (purpose) {
    case PoolPurpose::kGeneral:
      return "general";
    case PoolPurpose::kLongContext:
      return "long_context";
    case PoolPurpose::kLongGeneration:
      return "long_generation";
  }
  return "general";
}

Cluster::Cluster(const Scenario& scenario, const PolicySpec& policy, const Registry& registry,
                 std::uint64_t seed, RunLog* log)
    : scenario_(scenario),
      seed_(seed),
      log_(log),
      system_prompts_(scenario.workload, seed),
      system_prompt_seen_(system_prompts_.count(), false),
      arrivals_(mixed(seed ^ 0x4152'5249'5645ULL)),
      meter_(scenario.replicas.size()) {
  if (scenario.replicas.empty()) throw std::invalid_argument("the scenario has no replica");
  const double turns = scenario.workload.expected_turns();
  gap_mean_ = turns / scenario.arrivals.rate;

  std::uint64_t longest = scenario.workload.max_context;
  engines_.reserve(scenario.replicas.size());
  for (const ReplicaSpec& replica : scenario.replicas) {
    engines_.emplace_back(replica.engine);
    if (replica.slowness != 1) engines_.back().slow_down(replica.slowness, kRunBegin);
    longest = std::min(longest, replica.engine.capacity_tokens());
  }
  longest_ = static_cast<std::uint32_t>(longest);
  replicas_.resize(engines_.size());

  // A replica that joins later is not there yet.
  for (const FaultSpec& fault : scenario.faults) {
    if (fault.kind == FaultKind::kJoins) replicas_[fault.replica].alive = false;
  }
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    const ReplicaSpec& replica = scenario.replicas[i];
    const PoolPurpose purpose = scenario.segregated ? replica.pool : PoolPurpose::kGeneral;
    view_.replicas.push_back({.identity = mixed(i + 1),
                              .weight = replica.weight,
                              .pool = static_cast<PoolIndex>(purpose),
                              .usable = true});
  }
  const std::size_t pools = scenario.segregated ? 3 : 1;
  for (std::size_t i = 0; i < pools; ++i) {
    PoolView& pool = view_.pools.emplace_back();
    pool.name = pool_name(kPurposes[i]);
    pool.purpose = kPurposes[i];
  }
  backlogs_.resize(pools);
  sent_to_pool_.resize(pools, 0);
  rebuild_view();

  const BalancersSpec& spec = scenario.balancers;
  Router::Options options;
  options.segregation = spec.segregation;
  options.saturation = spec.saturation;
  options.index.max_bytes = spec.index_bytes;
  options.block_tokens = spec.block_tokens;
  if (spec.index == IndexKind::kShared) {
    shared_index_ = std::make_unique<SharedIndex>(options.index);
    options.prefixes = shared_index_.get();
  } else if (spec.index == IndexKind::kExact) {
    exact_index_ = std::make_unique<ExactIndex>(engines_, spec.event_delay);
    options.prefixes = exact_index_.get();
  }
  balancers_.reserve(spec.count);
  for (std::uint32_t i = 0; i < spec.count; ++i) {
    options.seed = balancer_seed(seed, i);
    balancers_.emplace_back(i, options, build_pipelines(registry, policy, pools), log);
  }
  needs_ = balancers_.front().needs();
  features_.stream = true;
  features_.block_tokens = spec.block_tokens;
}

RunResult Cluster::run() {
  const MeasureSpec& measure = scenario_.measure;
  if (scenario_.arrivals.kind == ArrivalKind::kTrace) open_trace();
  if (!is_closed()) {
    Duration length = measure.length;
    if (trace_) {
      length = length > Duration{} ? std::min(length, trace_length_) : trace_length_;
    } else if (length <= Duration{}) {
      length = from_seconds(static_cast<double>(measure.requests) / scenario_.arrivals.rate);
    }
    const Duration warm_up = from_seconds(to_seconds(length) * measure.warm_up);
    queue_.put(kRunBegin + warm_up, EventKind::kWindowBegins, 0);
    arrivals_end_ = kRunBegin + length;
    queue_.put(arrivals_end_, EventKind::kArrivalsEnd, 0);
    sample_interval_ = std::max<Duration>(std::chrono::seconds(1), (length - warm_up) / 5'000);
    const double expected = trace_ ? static_cast<double>(trace_left_)
                                   : 1.05 * scenario_.arrivals.rate * to_seconds(length);
    requests_.reserve(static_cast<std::size_t>(expected * (1 - measure.warm_up)) + 100);
  } else {
    sample_interval_ = std::chrono::seconds(1);
    requests_.reserve(measure.requests);
    if (measure.warm_up == 0) begin_window();
  }
  for (std::uint32_t i = 0; i < scenario_.faults.size(); ++i) {
    queue_.put(kRunBegin + scenario_.faults[i].at, EventKind::kFault, i);
  }
  const BalancersSpec& spec = scenario_.balancers;
  if (spec.poll > Duration{}) {
    Rng phases(mixed(seed_ ^ 0x5048'4153'45ULL));
    for (std::uint32_t i = 0; i < balancers_.size(); ++i) {
      const double part = phases.unit();
      const Duration phase = spec.phase == PollPhase::kRandom
                                 ? from_seconds(to_seconds(spec.poll) * part)
                                 : Duration{};
      queue_.put(kRunBegin + phase, EventKind::kPoll, i);
    }
  }
  if (spec.exchange > Duration{} && balancers_.size() > 1) {
    queue_.put(kRunBegin + spec.exchange, EventKind::kExchange, 0);
  }
  if (scenario_.arrivals.kind == ArrivalKind::kClosed) {
    for (std::uint32_t i = 0; i < scenario_.arrivals.users; ++i) begin_conversation();
  } else if (trace_) {
    read_trace();
  } else {
    schedule_conversation();
  }

  while (!queue_.empty()) {
    if (in_flight_ == 0 && queue_.next_time() > arrivals_end_) break;
    const auto event = queue_.take();
    now_ = event.at;
    switch (event.kind) {
      case EventKind::kConversation:
        begin_conversation();
        schedule_conversation();
        break;
      case EventKind::kTurn:
        send_turn(event.subject);
        break;
      case EventKind::kTrace:
        send_traced();
        break;
      case EventKind::kEngine:
        if (event.version == replicas_[event.subject].version) {
          replicas_[event.subject].scheduled = kForever;
          advance(event.subject);
          schedule_engine(event.subject);
        }
        break;
      case EventKind::kPoll:
        poll_round(event.subject);
        break;
      case EventKind::kReports:
        balancers_[event.subject].arrive(now_);
        break;
      case EventKind::kExchange:
        exchange();
        break;
      case EventKind::kSample:
        sample();
        break;
      case EventKind::kWindowBegins:
        begin_window();
        break;
      case EventKind::kArrivalsEnd:
        end_window();
        break;
      case EventKind::kFault:
        strike(scenario_.faults[event.subject]);
        break;
    }
  }
  end_window();
  if (log_ != nullptr) {
    for (ReplicaIndex i = 0; i < engines_.size(); ++i) log_->replica_ended(i, engines_[i].engine());
  }

  RunResult result;
  const double seconds = meter_.seconds();
  requests_.measure(measure, seconds, result);
  const auto prompts = static_cast<double>(prompt_sum_);
  if (prompt_sum_ > 0) {
    result.prefix_hit_rate = static_cast<double>(cached_sum_) / prompts;
    result.prefix_hit_bound = static_cast<double>(known_sum_) / prompts;
    result.predicted_hit_rate = static_cast<double>(predicted_sum_) / prompts;
  }
  if (arrivals_measured_ > 0) {
    result.follow_up_share =
        static_cast<double>(follow_ups_) / static_cast<double>(arrivals_measured_);
  }
  if (seconds > 0) {
    result.offered_rps = static_cast<double>(arrivals_measured_) / seconds;
    result.busy_share = std::chrono::duration<double>(busy_).count() /
                        (seconds * static_cast<double>(engines_.size()));
    result.cv_load = meter_.mean_cv();
    result.mean_in_flight = meter_.mean_total();
  }
  if (samples_ > 0) {
    result.mean_kv = kv_sum_ / static_cast<double>(samples_ * engines_.size());
    for (std::size_t pool = 0; pool < backlogs_.size(); ++pool) {
      result.queue_growth_rps = (pool == 0 ? 0 : result.queue_growth_rps) + growth(pool);
      if (outgrew(pool, seconds)) result.over_capacity = 1;
    }
  }
  result.valve_openings = static_cast<double>(valve_openings_);
  result.all_saturated = static_cast<double>(all_saturated_);
  result.pool_fallbacks = static_cast<double>(fallbacks_);
  result.retried = static_cast<double>(retried_);
  result.failed = static_cast<double>(failed_);
  for (const VirtualEngine& engine : engines_) {
    result.preemptions += static_cast<double>(engine.state(now_).preemptions);
  }
  result.balancers = static_cast<double>(balancers_.size());
  result.poll_s = to_seconds(spec.poll);
  result.exchange_s = to_seconds(spec.exchange);
  double* const sizes[] = {&result.replicas_general, &result.replicas_long_context,
                           &result.replicas_long_generation};
  for (const pointsman::Replica& replica : view_.replicas) ++*sizes[replica.pool];
  return result;
}

double Cluster::completion_rate() const {
  return meter_.seconds() > 0 ? static_cast<double>(completions_) / meter_.seconds()
                              : RunResult::kNone;
}

// ---------------------------------------------------------------------------- workload

void Cluster::schedule_conversation() {
  const double gap = draw_gamma(arrivals_, gap_mean_, scenario_.arrivals.cv);
  const TimePoint at = now_ + from_seconds(gap);
  if (at < arrivals_end_) queue_.put(at, EventKind::kConversation, 0);
}

void Cluster::begin_conversation() {
  const std::uint64_t number = conversations_begun_++;
  std::uint32_t place = 0;
  const ConversationScript script(scenario_.workload, seed_, number);
  if (free_conversations_.empty()) {
    place = static_cast<std::uint32_t>(conversations_.size());
    conversations_.push_back({.script = script, .next = {}});
  } else {
    place = free_conversations_.back();
    free_conversations_.pop_back();
    conversations_[place] = {.script = script, .next = {}};
  }
  Conversation& conversation = conversations_[place];
  conversation.number = number;
  conversation.next = conversation.script.next(scenario_.workload);
  conversation.system_prompt = system_prompts_.of_conversation(number);
  if (conversation.system_prompt != SystemPrompts::kNone) {
    conversation.system_tokens =
        std::min(system_prompts_.tokens(conversation.system_prompt), longest_ / 2);
    conversation.context = conversation.system_tokens;
  }
  // What fits no engine at all is cut.
  Turn& turn = conversation.next;
  turn.output_tokens = std::min(turn.output_tokens, longest_ / 4);
  turn.new_tokens = std::min(turn.new_tokens, longest_ - conversation.context - turn.output_tokens);
  // The first of a closed loop's users begin together; later ones think first.
  const bool waits = scenario_.arrivals.kind == ArrivalKind::kClosed && sent_ > 0;
  queue_.put(waits ? now_ + from_seconds(turn.think_s) : now_, EventKind::kTurn, place);
}

void Cluster::send_turn(std::uint32_t place) {
  Conversation& conversation = conversations_[place];
  if (now_ >= arrivals_end_) return;
  if (is_closed()) {
    const auto first_measured = static_cast<std::uint64_t>(scenario_.measure.warm_up *
                                                           static_cast<double>(requests_wanted()));
    if (sent_ == requests_wanted()) {
      arrivals_end_ = now_;
      end_window();
      return;
    }
    if (sent_ == first_measured) begin_window();
  }
  const Turn& turn = conversation.next;

  const std::uint32_t flight_place = new_flight();
  Flight& flight = flights_[flight_place];
  flight.conversation_number = conversation.number;
  flight.session_key = mixed(conversation.number + 1);
  flight.conversation = place;
  flight.turn = conversation.turn;
  flight.known_tokens = conversation.turn == 0 ? 0 : conversation.context;
  if (conversation.turn == 0 && conversation.system_prompt != SystemPrompts::kNone) {
    if (system_prompt_seen_[conversation.system_prompt]) {
      flight.known_tokens = conversation.system_tokens;
    }
    system_prompt_seen_[conversation.system_prompt] = true;
  }
  flight.prompt_tokens = conversation.context + turn.new_tokens;
  flight.output_tokens = turn.output_tokens;
  flight.max_tokens = turn.max_tokens;
  if (conversation.system_tokens > 0) {
    flight.content.push_back({system_run(conversation.system_prompt), conversation.system_tokens});
  }
  flight.content.push_back(
      {conversation_run(conversation.number), flight.prompt_tokens + flight.output_tokens});

  conversation.context = flight.prompt_tokens + flight.output_tokens;
  ++conversation.turn;
  if (scenario_.arrivals.kind == ArrivalKind::kOpen) {
    flight.conversation = kNone;
    continue_conversation(place, now_);
  }
  launch(flight_place);
}

std::uint32_t Cluster::new_flight() {
  std::uint32_t place = 0;
  if (free_flights_.empty()) {
    place = static_cast<std::uint32_t>(flights_.size());
    flights_.emplace_back();
  } else {
    place = free_flights_.back();
    free_flights_.pop_back();
  }
  Flight& flight = flights_[place];
  flight.number = sent_++;
  flight.arrived = now_;
  flight.first_token = TimePoint{};
  flight.conversation = kNone;
  flight.turn = 0;
  flight.known_tokens = 0;
  flight.cached_tokens = 0;
  flight.lost_once = false;
  flight.measured = measuring_;
  flight.content.clear();
  return place;
}

void Cluster::launch(std::uint32_t place) {
  Flight& flight = flights_[place];
  // By conversation and turn, so that every policy's requests meet the same balancers.
  const std::uint64_t chance = mixed(seed_ ^ mixed(flight.conversation_number << 16 | flight.turn));
  flight.balancer = static_cast<std::uint32_t>(chance % balancers_.size());
  ++in_flight_;
  if (flight.measured) {
    ++arrivals_measured_;
    if (flight.turn > 0) ++follow_ups_;
  }
  send(place, {});
}

void Cluster::open_trace() {
  const ArrivalsSpec& spec = scenario_.arrivals;
  const auto open = [&] {
    Result<TraceReader> reader = TraceReader::open(spec.trace);
    if (!reader) throw std::invalid_argument(reader.error().message);
    return std::move(*reader);
  };
  TraceReader reader = open();
  const std::uint64_t most =
      spec.trace_requests > 0 ? spec.trace_requests : std::numeric_limits<std::uint64_t>::max();
  while (trace_left_ < most) {
    const Result<bool> more = reader.next(traced_);
    if (!more) throw std::invalid_argument(more.error().message);
    if (!*more) break;
    ++trace_left_;
  }
  if (trace_left_ == 0) throw std::invalid_argument(spec.trace + ": there is no request");
  // The end lies behind the last request.
  trace_length_ = from_seconds(to_seconds(traced_.at) / spec.trace_speed) + Duration(1);
  trace_ = open();
}

void Cluster::read_trace() {
  if (trace_left_ == 0) return;
  --trace_left_;
  // It was read to here before, so that nothing is wrong with it.
  if (!trace_->next(traced_)) return;
  const Duration at = from_seconds(to_seconds(traced_.at) / scenario_.arrivals.trace_speed);
  queue_.put(kRunBegin + at, EventKind::kTrace, 0);
}

void Cluster::send_traced() {
  if (now_ >= arrivals_end_) return;
  const std::uint32_t place = new_flight();
  Flight& flight = flights_[place];
  flight.conversation_number = flight.number;
  flight.session_key = traced_.session_key;
  // What fits no engine at all is cut.
  flight.prompt_tokens = std::min(traced_.prompt_tokens, longest_ / 4 * 3);
  flight.output_tokens = std::min(traced_.output_tokens, longest_ / 4);
  flight.max_tokens = flight.output_tokens;
  flight.content = traced_.content;
  std::uint32_t begin = 0;
  bool leads = true;
  for (ContentRun& run : flight.content) {
    run.end = std::min(run.end, flight.prompt_tokens + flight.output_tokens);
    if (is_unique(run.id)) break;  // and so is all that follows
    std::uint32_t& seen = trace_seen_[run.id];
    if (leads && seen > begin) {
      flight.known_tokens = std::min({seen, run.end, flight.prompt_tokens});
    }
    leads = leads && seen >= run.end;
    seen = std::max(seen, run.end);
    begin = run.end;
  }
  flight.turn = flight.known_tokens > 0 ? 1 : 0;
  read_trace();
  launch(place);
}

void Cluster::continue_conversation(std::uint32_t place, TimePoint at) {
  Conversation& conversation = conversations_[place];
  if (conversation.script.turns_left() == 0) {
    end_conversation(place, at);
    return;
  }
  conversation.next = conversation.script.next(scenario_.workload);
  const Turn& turn = conversation.next;
  if (std::uint64_t{conversation.context} + turn.new_tokens + turn.output_tokens > longest_) {
    end_conversation(place, at);
    return;
  }
  queue_.put(at + from_seconds(turn.think_s), EventKind::kTurn, place);
}

void Cluster::end_conversation(std::uint32_t place, TimePoint at) {
  free_conversations_.push_back(place);
  if (scenario_.arrivals.kind == ArrivalKind::kClosed && at < arrivals_end_) begin_conversation();
}

// ---------------------------------------------------------------------------- balancers

void Cluster::send(std::uint32_t place, std::span<const ReplicaIndex> excluded) {
  Flight& flight = flights_[place];
  Balancer& balancer = balancers_[flight.balancer];
  const bool live = scenario_.balancers.poll <= Duration{};
  if (live || exact_index_ != nullptr) {
    for (ReplicaIndex i = 0; i < engines_.size(); ++i) advance(i);
  }
  if (live) {
    poll(balancer);
    balancer.arrive(now_);
  }
  features_.prompt_tokens = flight.prompt_tokens;
  features_.max_output_tokens = flight.max_tokens;
  features_.session_key = flight.session_key;
  if (needs_.blocks) {
    blocks_.clear();
    append_block_hashes(flight.content, flight.prompt_tokens, features_.block_tokens, blocks_);
    features_.blocks = blocks_;
    if (exact_index_ != nullptr)
      exact_index_->set_content(flight.content, flight.prompt_tokens, now_);
  }
  Decision decision = balancer.decide(features_, view_, excluded, now_);
  if (decision.verdict != Decision::Verdict::kSend) {
    close(place, now_, true);
    return;
  }
  flight.charge = std::move(decision.charge);
  flight.replica = decision.order[0];
  flight.predicted_tokens = decision.predicted_cached_tokens;
  if (flight.measured) {
    ++sent_to_pool_[view_.replicas[flight.replica].pool];
    if (decision.reason == Reason::kValve) ++valve_openings_;
    if (decision.reason == Reason::kAllSaturated) ++all_saturated_;
    if (decision.pool_fallback) ++fallbacks_;
  }
  meter_.change(flight.replica, 1, now_);
  chain_.clear();
  append_chain(flight.content, flight.prompt_tokens + flight.output_tokens, chain_);
  advance(flight.replica);
  engines_[flight.replica].submit({.id = place,
                                   .prompt_tokens = flight.prompt_tokens,
                                   .output_tokens = flight.output_tokens,
                                   .chain = chain_},
                                  now_);
  schedule_engine(flight.replica);
}

Signals Cluster::signals_of(ReplicaIndex replica, Duration max_age) {
  const EngineState state = engines_[replica].state(now_);
  Signals signals;
  signals.max_age = max_age;
  signals.kv_usage = static_cast<float>(state.kv_usage);
  signals.running = static_cast<float>(state.running);
  signals.waiting = static_cast<float>(state.waiting);
  signals.kv_capacity_tokens = scenario_.replicas[replica].engine.capacity_tokens();
  signals.block_tokens = kBlockTokens;
  return signals;
}

void Cluster::poll(Balancer& balancer) {
  const Duration interval = scenario_.balancers.poll;
  // A live reading is read again before the next decision, whenever that is.
  const Duration max_age = interval > Duration{} ? 3 * interval : Duration(std::chrono::hours(1));
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    if (!replicas_[i].alive || !replicas_[i].reports) continue;
    advance(i);
    balancer.poll(i, signals_of(i, max_age));
  }
  balancer.end_round();
}

void Cluster::poll_round(std::uint32_t number) {
  const BalancersSpec& spec = scenario_.balancers;
  Balancer& balancer = balancers_[number];
  poll(balancer);
  if (spec.signal_delay > Duration{}) {
    queue_.put(now_ + spec.signal_delay, EventKind::kReports, number);
  } else {
    balancer.arrive(now_);
  }
  queue_.put(now_ + spec.poll, EventKind::kPoll, number);
}

// All tell all at the same moment.
void Cluster::exchange() {
  for (std::uint32_t teller = 0; teller < balancers_.size(); ++teller) {
    const std::span<const PeerLoad> loads = balancers_[teller].tell(now_);
    for (std::uint32_t hearer = 0; hearer < balancers_.size(); ++hearer) {
      if (hearer != teller) balancers_[hearer].hear(static_cast<PeerIndex>(teller), loads);
    }
  }
  queue_.put(now_ + scenario_.balancers.exchange, EventKind::kExchange, 0);
}

// ---------------------------------------------------------------------------- engines

void Cluster::schedule_engine(ReplicaIndex replica) {
  Replica& state = replicas_[replica];
  const TimePoint at = engines_[replica].next_event().value_or(kForever);
  if (at == state.scheduled) return;
  state.scheduled = at;
  ++state.version;
  if (at != kForever) queue_.put(at, EventKind::kEngine, replica, state.version);
}

void Cluster::advance(ReplicaIndex replica) {
  const std::span<const EngineReport> reports = engines_[replica].advance(now_);
  for (const EngineReport& report : reports) {
    if (report.kind == EngineReportKind::kFirstToken) {
      first_token(report.request, report.at, report.cached);
    } else {
      finished(report.request, report.at);
    }
  }
  // What a cache gains in a prefill or loses to one is told with the next report, which is in time
  // for the conversation's next turn.
  if (exact_index_ != nullptr && exact_index_->is_delayed() && !reports.empty()) {
    exact_index_->note(replica, engines_[replica].take_kv_changes(now_), now_);
  }
}

void Cluster::first_token(RequestId request, TimePoint at, std::uint32_t cached_tokens) {
  Flight& flight = flights_[request];
  flight.first_token = at;
  flight.cached_tokens = cached_tokens;
  balancers_[flight.balancer].first_token(flight.charge, at);
}

void Cluster::finished(RequestId request, TimePoint at) {
  const auto place = static_cast<std::uint32_t>(request);
  Flight& flight = flights_[place];
  balancers_[flight.balancer].finished(std::move(flight.charge),
                                       {.event = Feedback::Event::kFinished,
                                        .prompt_tokens = flight.prompt_tokens,
                                        .cached_tokens = flight.cached_tokens},
                                       at);
  meter_.change(flight.replica, -1, at);
  close(place, at, false);
}

void Cluster::close(std::uint32_t place, TimePoint at, bool failed) {
  Flight& flight = flights_[place];
  --in_flight_;
  if (measuring_ && !failed) ++completions_;
  if (flight.measured && failed) ++failed_;
  if (flight.measured && !failed) {
    RequestLog::Entry entry;
    entry.ttft = flight.first_token - flight.arrived;
    entry.e2e = at - flight.arrived;
    entry.prompt_tokens = flight.prompt_tokens;
    entry.output_tokens = flight.output_tokens & 0x7fff'ffffU;
    features_.prompt_tokens = flight.prompt_tokens;
    features_.max_output_tokens = flight.max_tokens;
    entry.is_long =
        purpose_of(features_, scenario_.balancers.segregation) == PoolPurpose::kGeneral ? 0 : 1;
    requests_.add(entry);
    prompt_sum_ += flight.prompt_tokens;
    cached_sum_ += flight.cached_tokens;
    known_sum_ += flight.known_tokens;
    predicted_sum_ += flight.predicted_tokens;
  }
  if (log_ != nullptr) {
    log_->request_finished({.number = flight.number,
                            .conversation = flight.conversation_number,
                            .turn = flight.turn,
                            .balancer = flight.balancer,
                            .replica = flight.replica,
                            .prompt_tokens = flight.prompt_tokens,
                            .output_tokens = flight.output_tokens,
                            .cached_tokens = flight.cached_tokens,
                            .arrived = flight.arrived,
                            .first_token = flight.first_token,
                            .ended = at,
                            .measured = flight.measured,
                            .failed = failed});
  }
  const std::uint32_t conversation = flight.conversation;
  free_flights_.push_back(place);
  if (conversation == kNone) return;
  if (failed) {
    end_conversation(conversation, at);
  } else {
    continue_conversation(conversation, at);
  }
}

void Cluster::fail(std::uint32_t place, TimePoint at) {
  Flight& flight = flights_[place];
  const ReplicaIndex lost = flight.replica;
  balancers_[flight.balancer].finished(std::move(flight.charge),
                                       {.event = Feedback::Event::kFailed}, at);
  meter_.change(lost, -1, at);
  // As the proxy does: tried once more elsewhere while the client has seen nothing.
  if (flight.first_token == TimePoint{} && !flight.lost_once) {
    flight.lost_once = true;
    if (flight.measured) ++retried_;
    const ReplicaIndex excluded[] = {lost};
    send(place, excluded);
    return;
  }
  close(place, at, true);
}

// ---------------------------------------------------------------------------- faults

void Cluster::rebuild_view() {
  ++view_.generation;
  for (PoolView& pool : view_.pools) pool.usable.clear();
  for (ReplicaIndex i = 0; i < replicas_.size(); ++i) {
    view_.replicas[i].usable = replicas_[i].alive;
    if (replicas_[i].alive) view_.pools[view_.replicas[i].pool].usable.push_back(i);
  }
}

void Cluster::strike(const FaultSpec& fault) {
  Replica& replica = replicas_[fault.replica];
  VirtualEngine& engine = engines_[fault.replica];
  advance(fault.replica);
  switch (fault.kind) {
    case FaultKind::kDies: {
      replica.alive = false;
      rebuild_view();
      engine.clear(now_);
      schedule_engine(fault.replica);
      std::vector<std::uint32_t> lost;
      for (std::uint32_t i = 0; i < flights_.size(); ++i) {
        if (flights_[i].charge.held() && flights_[i].replica == fault.replica) lost.push_back(i);
      }
      for (const std::uint32_t place : lost) fail(place, now_);
      break;
    }
    case FaultKind::kRestarts:
    case FaultKind::kJoins:
      for (Balancer& balancer : balancers_) balancer.forget(fault.replica);
      replica.alive = true;
      rebuild_view();
      break;
    case FaultKind::kSlows:
      engine.slow_down(scenario_.replicas[fault.replica].slowness * fault.factor, now_);
      break;
    case FaultKind::kStopsReporting:
      replica.reports = false;
      break;
    case FaultKind::kReports:
      replica.reports = true;
      break;
  }
  schedule_engine(fault.replica);
}

// ---------------------------------------------------------------------------- measures

void Cluster::begin_window() {
  measuring_ = true;
  meter_.begin(now_);
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    advance(i);
    replicas_[i].busy_before = engines_[i].state(now_).busy;
  }
  queue_.put(now_ + sample_interval_, EventKind::kSample, 0);
}

void Cluster::end_window() {
  if (!measuring_) return;
  measuring_ = false;
  meter_.end(now_);
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    advance(i);
    busy_ += engines_[i].state(now_).busy - replicas_[i].busy_before;
  }
}

void Cluster::sample() {
  if (!measuring_) return;
  ++samples_;
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    advance(i);
    kv_sum_ += engines_[i].state(now_).kv_usage;
  }
  for (std::vector<double>& backlog : backlogs_) backlog.push_back(0);
  for (ReplicaIndex i = 0; i < engines_.size(); ++i) {
    backlogs_[view_.replicas[i].pool].back() += static_cast<double>(meter_.load(i));
  }
  queue_.put(now_ + sample_interval_, EventKind::kSample, 0);
}

// The slope over time by least squares; samples are equally far apart.
double Cluster::growth(std::size_t pool) const {
  const std::vector<double>& backlog = backlogs_[pool];
  const double middle = (static_cast<double>(backlog.size()) - 1) / 2;
  double covariance = 0;
  double variance = 0;
  for (std::size_t i = 0; i < backlog.size(); ++i) {
    const double t = static_cast<double>(i) - middle;
    covariance += t * backlog[i];
    variance += t * t;
  }
  return variance > 0 ? covariance / variance / to_seconds(sample_interval_) : 0;
}

// Whether more was sent to the pool than it could do. A queue that grows all the time grows by
// twice its mean; and chance alone makes a few more at the end than at the beginning.
bool Cluster::outgrew(std::size_t pool, double seconds) const {
  constexpr double kFew = 8;
  const std::vector<double>& backlog = backlogs_[pool];
  const double mean = std::accumulate(backlog.begin(), backlog.end(), 0.0) /
                      static_cast<double>(std::max<std::size_t>(1, backlog.size()));
  const double grew = growth(pool) * seconds;
  return grew > kFew && grew > 1.2 * mean && grew > 0.02 * static_cast<double>(sent_to_pool_[pool]);
}

}  // namespace

std::uint64_t balancer_seed(std::uint64_t seed, std::uint32_t balancer) {
  return mixed(seed ^ mixed(0xba1a'0000ULL + balancer));
}

RunResult run(const Scenario& scenario, const Arm& arm, const Registry& registry,
              std::uint64_t seed, RunLog* log) {
  const Scenario changed = with_arm(scenario, arm);
  RunResult result = Cluster(changed, arm.policy, registry, seed, log).run();
  if (changed.measure.closed_loop_users > 0) {
    Scenario loop = changed;
    loop.arrivals.kind = ArrivalKind::kClosed;
    loop.arrivals.users =
        changed.measure.closed_loop_users * static_cast<std::uint32_t>(changed.replicas.size());
    loop.workload.think_s = 0;
    loop.measure.length = Duration{};
    loop.measure.requests = std::max<std::uint64_t>(3'000, changed.measure.requests / 3);
    loop.faults.clear();
    Cluster cluster(loop, arm.policy, registry, seed, nullptr);
    (void)cluster.run();
    result.closed_loop_rps = cluster.completion_rate();
  }
  return result;
}

}  // namespace pointsman::sim
