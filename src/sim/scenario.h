#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/context.h"
#include "core/fleet_view.h"
#include "core/registry.h"
#include "core/router.h"
#include "sim/engine_config.h"
#include "sim/workload.h"

namespace pointsman::sim {

// One simulated engine behind the balancers.
struct ReplicaSpec {
  EngineConfig engine;
  double weight = 1;                         // capacity that the balancers are told
  PoolPurpose pool = PoolPurpose::kGeneral;  // its pool where the run is segregated
  double slowness = 1;                       // factor on every step's time
};

enum class PollPhase : std::uint8_t {
  kRandom,        // each balancer begins somewhere within its interval
  kSynchronised,  // all balancers poll at the same moments
};

enum class IndexKind : std::uint8_t {
  kOwn,     // each balancer predicts from what it has sent itself, as a router does alone
  kShared,  // one predicting index for all balancers
  kExact,   // what the replicas' caches really hold, as their KV events tell
};

// The routers in front of the replicas. Each is the shipped core with counters of its own; a
// request goes to a random one.
struct BalancersSpec {
  std::uint32_t count = 1;
  // Between two reports of a replica to a balancer. 0: live, every replica's state is read right
  // before each decision.
  Duration poll = std::chrono::seconds(1);
  PollPhase phase = PollPhase::kRandom;
  Duration signal_delay{};  // from the moment a report tells of to its arrival
  // Between two exchanges of the balancers' charges. 0: they exchange none.
  Duration exchange{};
  IndexKind index = IndexKind::kOwn;
  Duration event_delay{};                            // of the exact index
  std::uint32_t block_tokens = 16;                   // granularity of the index
  std::size_t index_bytes = std::size_t{256} << 20;  // of each predicting index
  SegregationLimits segregation;
  SaturationLimits saturation;
};

enum class ArrivalKind : std::uint8_t {
  // Conversations arrive by a renewal process; a follow-up turn comes when its client has read the
  // answer before it and thought.
  kSemiOpen,
  // The same, but nobody waits for answers: a follow-up comes a pause after the turn before it was
  // sent.
  kOpen,
  // A fixed number of users, each with one conversation after the other.
  kClosed,
  // Requests of a file, at its times.
  kTrace,
};

struct ArrivalsSpec {
  ArrivalKind kind = ArrivalKind::kSemiOpen;
  double rate = 1;               // requests per second, follow-ups included
  double cv = 1;                 // of the Gamma-distributed gaps between conversations; 1: Poisson
  std::uint32_t users = 0;       // of a closed loop
  std::string trace;             // path of a file that TraceReader knows
  double trace_speed = 1;        // 2: its requests come twice as fast
  std::uint32_t trace_skip = 0;  // leave out the first so many requests, and the time they took
  std::uint32_t trace_requests = 0;  // of the others the first so many; 0: all
};

enum class FaultKind : std::uint8_t {
  kDies,            // all it runs is lost, and its cache
  kRestarts,        // comes back with an empty cache
  kSlows,           // every step takes `factor` times as long as at first
  kStopsReporting,  // polls of it fail
  kReports,         // polls of it succeed again
  kJoins,           // takes part only from now on
};

struct FaultSpec {
  FaultKind kind = FaultKind::kDies;
  Duration at{};  // since the start of the run
  std::uint32_t replica = 0;
  double factor = 1;  // of kSlows
};

// For how long requests may come: three years. The clock counts ninety times as far.
inline constexpr double kLongestRunSeconds = 1e8;

inline constexpr std::uint32_t kMostRequests = 1'000'000'000;

// A run's length and what of it is measured.
struct MeasureSpec {
  // Arrivals end when so many requests are expected to have come, at the workload's rate; the run
  // then goes on until all have ended.
  std::uint32_t requests = 15'000;
  // Instead of it, the time for which requests arrive. 0: by `requests`.
  Duration length{};
  double warm_up = 0.2;         // share of that time whose requests are not measured
  Duration overhead{};          // added to each time to first token: network, parsing, tokenizing
  double goodput_ttft_s = 0.5;  // a request is good with at most this time to first token,
  double goodput_tpot_s = 0;    // and at most this time per output token after it; 0: any
  std::uint32_t closed_loop_users = 0;  // per replica, of the closed-loop rate; 0: not measured
};

// All of a simulation but the policy and the seed.
struct Scenario {
  std::string name = "scenario";
  std::vector<ReplicaSpec> replicas;
  bool segregated = false;  // the replicas are in pools by purpose, not all in one
  BalancersSpec balancers;
  WorkloadSpec workload;
  ArrivalsSpec arrivals;
  MeasureSpec measure;
  std::vector<FaultSpec> faults;
};

// One row of a comparison: a policy, and what it changes in the scenario. What is not set stays.
struct Arm {
  PolicySpec policy;
  std::string label;  // beside the policy's name; may be empty
  std::optional<std::uint32_t> balancers{};
  std::optional<Duration> poll{};
  std::optional<PollPhase> phase{};
  std::optional<Duration> exchange{};
  std::optional<IndexKind> index{};
  std::optional<Duration> event_delay{};
  std::optional<SaturationLimits> saturation{};
  std::optional<bool> segregated{};
};

[[nodiscard]] Scenario with_arm(const Scenario& scenario, const Arm& arm);

// Named scenarios: `ref70` and `set_a`.
struct ScenarioPreset {
  std::string_view name;
  std::string_view what;
};
[[nodiscard]] const std::vector<ScenarioPreset>& scenario_presets();
[[nodiscard]] std::optional<Scenario> find_scenario_preset(std::string_view name);

// `--replicas`: as many of them in the same mix, pools kept at their sizes; the rate grows with the
// number, so that each replica has the same load, and where that becomes more, the number of a
// run's requests with it, so that a run is no shorter than conversations are. The general pool
// keeps one replica at least.
void set_replicas(Scenario& scenario, std::uint32_t replicas);
// `--sharing`: the share of requests that are follow-up turns, [0, 0.99].
void set_sharing(Scenario& scenario, double share);

}  // namespace pointsman::sim
