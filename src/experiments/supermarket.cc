#include "experiments/supermarket.h"

#include <cassert>
#include <cmath>
#include <utility>
#include <vector>

#include "experiments/uniform_fleet.h"
#include "sim/chance.h"
#include "sim/event_queue.h"

namespace pointsman::sim {
namespace {

constexpr double kMeanServiceS = 1.0;
// Beyond it a tail adds nothing to a double.
constexpr double kNegligible = 1e-18;

class Supermarket {
 public:
  Supermarket(const SupermarketSpec& spec, UniformFleet fleet, std::uint64_t seed)
      : spec_(spec),
        fleet_(std::move(fleet)),
        arrival_rng_(mixed(seed)),
        service_rng_(mixed(seed + 1)),
        start_rng_(mixed(seed + 2)),
        measured_from_(kStart + from_seconds(spec.warm_up_s)),
        arrivals_end_(measured_from_ + from_seconds(spec.length_s)),
        queues_(spec.queues) {}

  SupermarketRun run() {
    if (spec_.from_limit) start_from_limit();
    put_next_arrival();
    while (!events_.empty()) {
      const auto event = events_.take();
      advance(event.at);
      switch (event.kind) {
        case Kind::kArrival:
          arrive(fleet_.view);
          put_next_arrival();
          break;
        case Kind::kDeparture:
          depart(event.subject);
          break;
      }
    }
    SupermarketRun result;
    result.customers = measured_;
    result.time_in_system_s = to_seconds(time_in_system_) / static_cast<double>(measured_);
    result.mean_in_system = area_s_ / (spec_.length_s * spec_.queues);
    return result;
  }

 private:
  enum class Kind : std::uint8_t { kArrival, kDeparture };

  struct Customer {
    Charge charge;
    TimePoint arrived;
    Duration service;
    std::uint32_t next = kNobody;  // behind this one in the queue
  };
  // First come, first served. Customers are numbered by their charges' entries.
  struct Queue {
    std::uint32_t first = kNobody;
    std::uint32_t last = kNobody;
  };

  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  static constexpr TimePoint kStart{std::chrono::hours(1)};

  // Books customers on one queue after the other: in a fleet with one usable replica the router has
  // no choice.
  void start_from_limit() {
    std::vector<double> tails;
    for (std::uint32_t i = 1; tails.empty() || tails.back() > kNegligible; ++i) {
      tails.push_back(supermarket_tail(spec_.load, spec_.choices, i));
    }
    FleetView alone = fleet_.view;
    alone.pools[0].usable.resize(1);
    for (ReplicaIndex replica = 0; replica < spec_.queues; ++replica) {
      alone.pools[0].usable[0] = replica;
      const double drawn = start_rng_.unit();
      for (const double tail : tails) {
        if (drawn >= tail) break;
        arrive(alone);
      }
    }
  }

  void put_next_arrival() {
    const double mean_gap_s = 1 / (spec_.load * spec_.queues);
    const TimePoint at = now_ + from_seconds(draw_exponential(arrival_rng_, mean_gap_s));
    if (at < arrivals_end_) events_.put(at, Kind::kArrival, 0);
  }

  void arrive(const FleetView& view) {
    Features features;
    features.stream = true;
    Decision decision = fleet_.router->decide(features, view, {}, now_);
    assert(decision.verdict == Decision::Verdict::kSend);
    const std::uint32_t place = decision.charge.entry();
    Queue& queue = queues_[decision.charge.replica()];
    if (place >= customers_.size()) customers_.resize(std::size_t{place} + 1);
    Customer& customer = customers_[place];
    customer.charge = std::move(decision.charge);
    customer.arrived = now_;
    customer.service = from_seconds(draw_exponential(service_rng_, kMeanServiceS));
    customer.next = kNobody;
    ++in_system_;
    if (queue.first == kNobody) {
      queue.first = place;
      serve(place);
    } else {
      customers_[queue.last].next = place;
    }
    queue.last = place;
  }

  void serve(std::uint32_t place) {
    events_.put(now_ + customers_[place].service, Kind::kDeparture, place);
  }

  void depart(std::uint32_t place) {
    Customer& customer = customers_[place];
    Queue& queue = queues_[customer.charge.replica()];
    queue.first = customer.next;
    if (queue.first != kNobody) serve(queue.first);
    if (customer.arrived >= measured_from_) {
      ++measured_;
      time_in_system_ += now_ - customer.arrived;
    }
    --in_system_;
    fleet_.router->finished(std::move(customer.charge), {}, now_);
  }

  // Moves the clock, and adds up the customers in the system over the measured time.
  void advance(TimePoint to) {
    const TimePoint from = std::max(now_, measured_from_);
    const TimePoint until = std::min(to, arrivals_end_);
    if (from < until) area_s_ += static_cast<double>(in_system_) * to_seconds(until - from);
    now_ = to;
  }

  const SupermarketSpec spec_;
  UniformFleet fleet_;
  Rng arrival_rng_;
  Rng service_rng_;
  Rng start_rng_;
  const TimePoint measured_from_;
  const TimePoint arrivals_end_;
  TimePoint now_ = kStart;
  EventQueue<Kind> events_;
  std::vector<Queue> queues_;        // by ReplicaIndex
  std::vector<Customer> customers_;  // by Charge::entry()
  std::uint64_t in_system_ = 0;
  std::uint64_t measured_ = 0;
  Duration time_in_system_{};  // of the measured customers: centuries fit
  double area_s_ = 0;
};

}  // namespace

double supermarket_tail(double load, std::uint32_t choices, std::uint32_t at_least) {
  // (d^i − 1)/(d − 1) = 1 + d + … + d^(i−1), i terms; for one choice that is i.
  double exponent = 0;
  double power = 1;
  for (std::uint32_t i = 0; i < at_least; ++i) {
    exponent += power;
    power *= choices;
  }
  return std::pow(load, exponent);
}

double supermarket_time_s(double load, std::uint32_t choices) {
  if (choices == 1) return kMeanServiceS / (1 - load);
  double sum = 0;
  // (d^i − d)/(d − 1) is one less than the exponent of the tail.
  for (std::uint32_t i = 1;; ++i) {
    const double term = supermarket_tail(load, choices, i) / load;
    if (term < kNegligible) return kMeanServiceS * sum;
    sum += term;
  }
}

Result<SupermarketRun> run_supermarket(const SupermarketSpec& spec, const Registry& registry,
                                       std::uint64_t seed) {
  Result<UniformFleet> fleet = make_uniform_fleet(spec.queues, spec.choices, registry, seed);
  if (!fleet) return fleet.error();
  return Supermarket(spec, std::move(*fleet), seed).run();
}

}  // namespace pointsman::sim
