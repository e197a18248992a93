#include "sim/cluster.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sim/balancer.h"
#include "sim/chance.h"
#include "sim/content.h"
#include "sim/event_queue.h"
#include "sim/flight.h"
#include "sim/prefix_sources.h"
#include "sim/run_meter.h"
#include "sim/simulated_fleet.h"
#include "sim/traffic.h"

namespace pointsman::sim {
namespace {

constexpr TimePoint kForever = TimePoint::max();

// The run is given up then. Nothing is ever planned farther ahead than a tenth of it.
constexpr TimePoint kClockEnds = kRunBegin + std::chrono::seconds(4'000'000'000);

// Measured requests that memory is reserved for; the rest has it when they come.
constexpr std::size_t kMostReserved = 2'000'000;

enum class EventKind : std::uint8_t {
  kEngine,    // a first token or an end at a replica
  kPoll,      // by a balancer
  kReports,   // arrive at a balancer
  kExchange,  // of the balancers' charges
  kSample,
  kWindowBegins,
  kArrivalsEnd,
  kFault,
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

// Tokens that prompt and answer of a request may have together, so that every replica can run it.
std::uint32_t longest_request(const Scenario& scenario) {
  if (scenario.replicas.empty()) throw std::invalid_argument("the scenario has no replica");
  std::uint64_t longest = scenario.workload.max_context;
  for (const ReplicaSpec& replica : scenario.replicas) {
    longest = std::min(longest, replica.engine.capacity_tokens());
  }
  return static_cast<std::uint32_t>(longest);
}

// Replicas and their balancers. What is sent comes from Traffic, what is measured goes to RunMeter.
class Cluster {
 public:
  Cluster(const Scenario& scenario, const PolicySpec& policy, const Registry& registry,
          std::uint64_t seed, RunLog* log);

  RunResult run();
  [[nodiscard]] double completion_rate() const { return meter_.completion_rate(); }

 private:
  // When the queue has an engine's next event.
  struct Entry {
    TimePoint at = kForever;
    std::uint32_t version = 0;
  };

  // --- the run
  void make_balancers(const PolicySpec& policy, const Registry& registry);
  void schedule_start();
  void handle(const EventQueue<EventKind>::Event& event);
  // Its length is a number of requests, since answers decide how long those take.
  [[nodiscard]] bool ends_by_count() const {
    return scenario_.measure.length <= Duration{} && !traffic_.length();
  }
  void begin_window();
  void end_window();
  void strike(const FaultSpec& fault);

  // --- requests
  void take_arrival();
  void send(std::uint32_t place, std::span<const ReplicaIndex> excluded);
  void lose(std::uint32_t place);
  void close(std::uint32_t place, TimePoint at, bool failed);

  // --- balancers
  void poll(Balancer& balancer);
  void poll_round(std::uint32_t number);
  void exchange();

  // --- engines
  // Runs the replica up to now, and tells of what it has brought.
  void advance(ReplicaIndex replica);
  void advance_all();
  void first_token(RequestId request, TimePoint at, std::uint32_t cached_tokens);
  void finished(RequestId request, TimePoint at);
  void schedule_engine(ReplicaIndex replica);

  const Scenario& scenario_;
  const std::uint64_t seed_;
  RunLog* log_;
  EventQueue<EventKind> queue_;
  TimePoint now_ = kRunBegin;
  TimePoint arrivals_end_ = kForever;
  Traffic traffic_;
  SimulatedFleet fleet_;
  RunMeter meter_;
  Duration sample_interval_ = std::chrono::seconds(1);

  Flights flights_;
  std::uint64_t sent_ = 0;
  std::size_t struck_ = 0;  // faults, while requests came

  std::vector<Entry> entries_;  // by replica
  std::unique_ptr<SharedIndex> shared_index_;
  std::unique_ptr<ExactIndex> exact_index_;
  std::vector<Balancer> balancers_;
  Needs needs_;
  Features features_;
  std::vector<BlockHash> blocks_;
  std::vector<ChainRun> chain_;
};

Cluster::Cluster(const Scenario& scenario, const PolicySpec& policy, const Registry& registry,
                 std::uint64_t seed, RunLog* log)
    : scenario_(scenario),
      seed_(seed),
      log_(log),
      traffic_(scenario, seed, longest_request(scenario), kRunBegin),
      fleet_(scenario, kRunBegin),
      meter_(scenario.measure, fleet_.pools()),
      entries_(fleet_.size()) {
  make_balancers(policy, registry);
}

void Cluster::make_balancers(const PolicySpec& policy, const Registry& registry) {
  const BalancersSpec& spec = scenario_.balancers;
  Router::Options options;
  options.segregation = spec.segregation;
  options.saturation = spec.saturation;
  options.index.max_bytes = spec.index_bytes;
  options.block_tokens = spec.block_tokens;
  if (spec.index == IndexKind::kShared) {
    shared_index_ = std::make_unique<SharedIndex>(options.index);
    options.prefixes = shared_index_.get();
  } else if (spec.index == IndexKind::kExact) {
    exact_index_ = std::make_unique<ExactIndex>(fleet_.engines(), spec.event_delay);
    options.prefixes = exact_index_.get();
  }
  balancers_.reserve(spec.count);
  for (std::uint32_t i = 0; i < spec.count; ++i) {
    options.seed = balancer_seed(seed_, i);
    balancers_.emplace_back(i, options,
                            build_pipelines(registry, policy, fleet_.view().pools.size()), log_);
  }
  needs_ = balancers_.front().needs();
  features_.stream = true;
  features_.block_tokens = spec.block_tokens;
}

// ---------------------------------------------------------------------------- the run

RunResult Cluster::run() {
  schedule_start();
  for (;;) {
    const TimePoint next_event = queue_.empty() ? kForever : queue_.next_time();
    const TimePoint next_arrival = traffic_.next_time();
    if (next_arrival < next_event && next_arrival < arrivals_end_ && next_arrival < kClockEnds) {
      now_ = next_arrival;
      take_arrival();
      continue;
    }
    if (next_event > kClockEnds && next_event != kForever) {
      throw std::invalid_argument("the run takes more than 4000000000 s of its own clock");
    }
    if (next_event == kForever || (flights_.in_flight() == 0 && next_event > arrivals_end_)) break;
    const auto event = queue_.take();
    now_ = event.at;
    handle(event);
  }
  end_window();
  if (log_ != nullptr) {
    for (ReplicaIndex i = 0; i < fleet_.size(); ++i) {
      log_->replica_ended(i, fleet_.engine(i).engine());
    }
  }

  RunResult result;
  meter_.write(result);
  if (const auto& counts = traffic_.trace_counts()) {
    result.trace_left_out = static_cast<double>(counts->left_out);
    result.trace_late = static_cast<double>(counts->late);
    result.trace_cut = static_cast<double>(counts->cut);
  } else {
    result.requests_cut = static_cast<double>(traffic_.cut_counts().requests);
    result.conversations_cut = static_cast<double>(traffic_.cut_counts().conversations);
  }
  if (!scenario_.faults.empty()) {
    result.faults_missed = static_cast<double>(scenario_.faults.size() - struck_);
  }
  for (const VirtualEngine& engine : fleet_.engines()) {
    result.preemptions += static_cast<double>(engine.state(now_).preemptions);
  }
  result.balancers = static_cast<double>(balancers_.size());
  result.poll_s = to_seconds(scenario_.balancers.poll);
  result.exchange_s = to_seconds(scenario_.balancers.exchange);
  double* const sizes[] = {&result.replicas_general, &result.replicas_long_context,
                           &result.replicas_long_generation};
  for (const Replica& replica : fleet_.view().replicas) ++*sizes[replica.pool];
  return result;
}

void Cluster::schedule_start() {
  const MeasureSpec& measure = scenario_.measure;
  if (ends_by_count()) {
    meter_.reserve(std::min<std::size_t>(measure.requests, kMostReserved));
    if (measure.warm_up == 0) begin_window();
  } else {
    Duration length = measure.length > Duration{} ? measure.length : *traffic_.length();
    if (scenario_.arrivals.kind == ArrivalKind::kTrace)
      length = std::min(length, *traffic_.length());
    const Duration warm_up = from_seconds(to_seconds(length) * measure.warm_up);
    arrivals_end_ = kRunBegin + length;
    queue_.put(kRunBegin + warm_up, EventKind::kWindowBegins, 0);
    queue_.put(arrivals_end_, EventKind::kArrivalsEnd, 0);
    const Duration window = length - warm_up;
    sample_interval_ = std::clamp<Duration>(std::chrono::seconds(1), window / 5'000,
                                            std::max(window / 64, Duration(1)));
    meter_.reserve(std::min(traffic_.expected(window), kMostReserved));
  }
  for (std::uint32_t i = 0; i < scenario_.faults.size(); ++i) {
    queue_.put(kRunBegin + scenario_.faults[i].at, EventKind::kFault, i);
  }
  const BalancersSpec& spec = scenario_.balancers;
  if (spec.poll > Duration{}) {
    Rng phases(mixed(seed_ ^ 0x5048'4153'45ULL));
    for (std::uint32_t i = 0; i < balancers_.size(); ++i) {
      const Duration phase = from_seconds(to_seconds(spec.poll) * phases.unit());
      const bool random = spec.phase == PollPhase::kRandom;
      queue_.put(kRunBegin + (random ? phase : Duration{}), EventKind::kPoll, i);
    }
  }
  if (spec.exchange > Duration{} && balancers_.size() > 1) {
    queue_.put(kRunBegin + spec.exchange, EventKind::kExchange, 0);
  }
}

void Cluster::handle(const EventQueue<EventKind>::Event& event) {
  switch (event.kind) {
    case EventKind::kEngine:
      if (event.version == entries_[event.subject].version) {
        entries_[event.subject].at = kForever;
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
      if (!meter_.measuring()) break;
      advance_all();
      meter_.sample(now_, fleet_.engines());
      queue_.put(now_ + sample_interval_, EventKind::kSample, 0);
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

void Cluster::begin_window() {
  advance_all();
  meter_.begin(now_, fleet_.engines());
  queue_.put(now_ + sample_interval_, EventKind::kSample, 0);
}

void Cluster::end_window() {
  advance_all();
  meter_.end(now_, fleet_.engines());
}

void Cluster::strike(const FaultSpec& fault) {
  if (now_ <= arrivals_end_) ++struck_;
  VirtualEngine& engine = fleet_.engine(fault.replica);
  advance(fault.replica);
  switch (fault.kind) {
    case FaultKind::kDies:
      fleet_.set_alive(fault.replica, false);
      engine.clear(now_);
      for (std::uint32_t i = 0; i < flights_.places(); ++i) {
        if (flights_[i].charge.held() && flights_[i].replica == fault.replica) lose(i);
      }
      break;
    case FaultKind::kRestarts:
    case FaultKind::kJoins:
      for (Balancer& balancer : balancers_) balancer.forget(fault.replica);
      fleet_.set_alive(fault.replica, true);
      break;
    case FaultKind::kSlows:
      engine.slow_down(scenario_.replicas[fault.replica].slowness * fault.factor, now_);
      break;
    case FaultKind::kStopsReporting:
      fleet_.set_reporting(fault.replica, false);
      break;
    case FaultKind::kReports:
      fleet_.set_reporting(fault.replica, true);
      break;
  }
  schedule_engine(fault.replica);
}

// ---------------------------------------------------------------------------- requests

void Cluster::take_arrival() {
  if (ends_by_count()) {
    const auto first_measured = static_cast<std::uint64_t>(
        scenario_.measure.warm_up * static_cast<double>(scenario_.measure.requests));
    if (sent_ == scenario_.measure.requests) {
      arrivals_end_ = now_;
      end_window();
      return;
    }
    if (sent_ == first_measured && !meter_.measuring()) begin_window();
  }
  const std::uint32_t place = flights_.begin();
  Flight& flight = flights_[place];
  traffic_.take(flight.request);
  flight.number = sent_++;
  flight.arrived = now_;
  flight.measured = meter_.measuring();
  // By conversation and turn, so that every policy's requests meet the same balancers.
  const std::uint64_t chance =
      mixed(seed_ ^ mixed(flight.request.conversation << 16 | flight.request.turn));
  flight.balancer = static_cast<std::uint32_t>(chance % balancers_.size());
  if (flight.measured) meter_.arrived(flight.request.turn > 0);
  send(place, {});
}

void Cluster::send(std::uint32_t place, std::span<const ReplicaIndex> excluded) {
  Flight& flight = flights_[place];
  const Arrival& request = flight.request;
  Balancer& balancer = balancers_[flight.balancer];
  const bool live = scenario_.balancers.poll <= Duration{};
  if (live || exact_index_ != nullptr) advance_all();
  if (live) {
    poll(balancer);
    balancer.arrive(now_);
  }
  features_.prompt_tokens = request.prompt_tokens;
  features_.max_output_tokens = request.max_tokens;
  features_.session_key = request.session_key;
  if (needs_.blocks) {
    blocks_.clear();
    append_block_hashes(request.content, request.prompt_tokens, features_.block_tokens, blocks_);
    features_.blocks = blocks_;
    if (exact_index_ != nullptr) {
      exact_index_->set_content(request.content, request.prompt_tokens, now_);
    }
  }
  Decision decision = balancer.decide(features_, fleet_.view(), excluded, now_);
  if (decision.verdict != Decision::Verdict::kSend) {
    close(place, now_, true);
    return;
  }
  flight.replica = decision.order[0];
  flight.predicted_tokens = decision.predicted_cached_tokens;
  if (flight.measured) meter_.sent(decision);
  flight.charge = std::move(decision.charge);
  meter_.in_flight(flight.replica, 1, now_);
  chain_.clear();
  append_chain(request.content, request.prompt_tokens + request.output_tokens, chain_);
  advance(flight.replica);
  fleet_.engine(flight.replica)
      .submit({.id = place,
               .prompt_tokens = request.prompt_tokens,
               .output_tokens = request.output_tokens,
               .chain = chain_},
              now_);
  schedule_engine(flight.replica);
}

// The replica died with it. As the proxy does: tried once more elsewhere while the client has seen
// nothing.
void Cluster::lose(std::uint32_t place) {
  Flight& flight = flights_[place];
  const ReplicaIndex lost[] = {flight.replica};
  balancers_[flight.balancer].finished(std::move(flight.charge),
                                       {.event = Feedback::Event::kFailed}, now_);
  meter_.in_flight(flight.replica, -1, now_);
  if (flight.first_token != TimePoint{} || flight.lost_once) {
    close(place, now_, true);
    return;
  }
  flight.lost_once = true;
  if (flight.measured) meter_.retried();
  send(place, lost);
}

void Cluster::close(std::uint32_t place, TimePoint at, bool failed) {
  const Flight& flight = flights_[place];
  const Arrival& request = flight.request;
  if (!failed) meter_.completed();
  if (flight.measured && failed) meter_.failed();
  if (flight.measured && !failed) {
    meter_.finished(flight.entry(at, scenario_.balancers.segregation),
                    {.prompt = request.prompt_tokens,
                     .cached = flight.cached_tokens,
                     .known = request.known_tokens,
                     .predicted = flight.predicted_tokens});
  }
  if (log_ != nullptr) log_->request_finished(flight.finished(at, failed));
  flights_.end(place);
  if (request.waiting == Arrival::kNobody) return;
  if (failed) {
    traffic_.failed(request.waiting, at);
  } else {
    traffic_.answered(request.waiting, at);
  }
}

// ---------------------------------------------------------------------------- balancers

void Cluster::poll(Balancer& balancer) {
  const Duration interval = scenario_.balancers.poll;
  // A live reading is read again before the next decision, whenever that is.
  const Duration max_age = interval > Duration{} ? 3 * interval : Duration(std::chrono::hours(1));
  for (ReplicaIndex i = 0; i < fleet_.size(); ++i) {
    if (!fleet_.answers_polls(i)) continue;
    advance(i);
    balancer.poll(i, fleet_.signals(i, max_age, now_));
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

void Cluster::advance(ReplicaIndex replica) {
  const std::span<const EngineReport> reports = fleet_.engine(replica).advance(now_);
  for (const EngineReport& report : reports) {
    if (report.kind == EngineReportKind::kFirstToken) {
      first_token(report.request, report.at, report.cached);
    } else {
      finished(report.request, report.at);
    }
  }
  if (exact_index_ != nullptr && exact_index_->is_delayed()) {
    exact_index_->note(replica, fleet_.engine(replica).take_kv_changes());
  }
}

void Cluster::advance_all() {
  for (ReplicaIndex i = 0; i < fleet_.size(); ++i) advance(i);
}

void Cluster::schedule_engine(ReplicaIndex replica) {
  Entry& entry = entries_[replica];
  const TimePoint at = fleet_.engine(replica).next_event().value_or(kForever);
  if (at == entry.at) return;
  entry.at = at;
  ++entry.version;
  if (at != kForever) queue_.put(at, EventKind::kEngine, replica, entry.version);
}

void Cluster::first_token(RequestId request, TimePoint at, std::uint32_t cached_tokens) {
  Flight& flight = flights_[static_cast<std::uint32_t>(request)];
  flight.first_token = at;
  flight.cached_tokens = cached_tokens;
  balancers_[flight.balancer].first_token(flight.charge, at);
}

void Cluster::finished(RequestId request, TimePoint at) {
  const auto place = static_cast<std::uint32_t>(request);
  Flight& flight = flights_[place];
  balancers_[flight.balancer].finished(std::move(flight.charge),
                                       {.event = Feedback::Event::kFinished,
                                        .prompt_tokens = flight.request.prompt_tokens,
                                        .cached_tokens = flight.cached_tokens},
                                       at);
  meter_.in_flight(flight.replica, -1, at);
  close(place, at, false);
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
