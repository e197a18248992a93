#include "sim/scenario.h"

#include <algorithm>
#include <cmath>

namespace pointsman::sim {
namespace {

// So many replicas of each purpose, with one engine.
std::vector<ReplicaSpec> fleet(std::string_view engine, std::uint32_t general,
                               std::uint32_t long_context, std::uint32_t long_generation) {
  ReplicaSpec replica;
  replica.engine = find_engine_preset(engine)->config;
  std::vector<ReplicaSpec> replicas(general, replica);
  replica.pool = PoolPurpose::kLongContext;
  replicas.insert(replicas.end(), long_context, replica);
  replica.pool = PoolPurpose::kLongGeneration;
  replicas.insert(replicas.end(), long_generation, replica);
  return replicas;
}

// About a 70B model in FP8 on four H100: long prompts, most of them follow-up turns, near the
// capacity of round robin.
Scenario ref70() {
  Scenario scenario;
  scenario.name = "ref70";
  scenario.replicas = fleet("ref70", 6, 1, 1);
  scenario.balancers.count = 4;
  scenario.balancers.poll = std::chrono::milliseconds(1'500);
  WorkloadSpec& workload = scenario.workload;
  workload.first_prompt = {.median = 4'000, .sigma = 0.25};
  workload.follow_up = {.median = 770, .sigma = 0.7};
  workload.output = {.median = 375, .sigma = 1.2, .high = 4'000};
  workload.turns_mean = 2.5;
  workload.turns_sigma = 0.4;
  workload.document_share = 0.0038;
  workload.long_generation_share = 0.005;
  workload.long_generation = {.median = 5'500, .sigma = 0.5, .low = 500, .high = 16'000};
  workload.think_s = 13;
  scenario.arrivals.rate = 7.15;
  scenario.arrivals.cv = 1.5;
  scenario.measure.overhead = std::chrono::milliseconds(30);
  return scenario;
}

// An 8B model on one A100: short prompts with a heavy tail.
Scenario set_a() {
  Scenario scenario;
  scenario.name = "set_a";
  scenario.replicas = fleet("set_a", 6, 1, 1);
  scenario.balancers.count = 4;
  scenario.balancers.poll = std::chrono::seconds(2);
  WorkloadSpec& workload = scenario.workload;
  workload.first_prompt = {.median = 800, .sigma = 1.2};
  workload.follow_up = {.median = 200, .sigma = 1.0};
  workload.output = {.median = 250, .sigma = 1.0, .high = 4'000};
  workload.turns_law = TurnsLaw::kGeometric;
  workload.turns_mean = 2.5;
  workload.document_share = 0.003;
  workload.document_high = 120'000;
  workload.long_generation_share = 0.01;
  workload.long_generation = {.median = 5'000, .sigma = 0.5, .low = 500, .high = 16'000};
  workload.think_s = 15;
  scenario.arrivals.rate = 18;
  scenario.measure.overhead = std::chrono::milliseconds(10);
  return scenario;
}

}  // namespace

Scenario with_arm(const Scenario& scenario, const Arm& arm) {
  Scenario changed = scenario;
  if (arm.balancers) changed.balancers.count = *arm.balancers;
  if (arm.poll) changed.balancers.poll = *arm.poll;
  if (arm.phase) changed.balancers.phase = *arm.phase;
  if (arm.exchange) changed.balancers.exchange = *arm.exchange;
  if (arm.index) changed.balancers.index = *arm.index;
  if (arm.event_delay) changed.balancers.event_delay = *arm.event_delay;
  if (arm.saturation) changed.balancers.saturation = *arm.saturation;
  if (arm.segregated) changed.segregated = *arm.segregated;
  return changed;
}

const std::vector<ScenarioPreset>& scenario_presets() {
  static const std::vector<ScenarioPreset> presets = {
      {"ref70", "about a 70B model in FP8 on four H100, long conversations, near saturation"},
      {"set_a", "an 8B model on one A100, short prompts with a heavy tail"},
  };
  return presets;
}

std::optional<Scenario> find_scenario_preset(std::string_view name) {
  if (name == "ref70") return ref70();
  if (name == "set_a") return set_a();
  return std::nullopt;
}

void set_replicas(Scenario& scenario, std::uint32_t replicas) {
  if (scenario.replicas.empty() || replicas == 0) return;
  const double factor = replicas / static_cast<double>(scenario.replicas.size());
  std::vector<ReplicaSpec> list;
  // The special pools keep their sizes as far as one general replica is left.
  for (const ReplicaSpec& replica : scenario.replicas) {
    if (replica.pool != PoolPurpose::kGeneral && list.size() + 1 < replicas)
      list.push_back(replica);
  }
  std::vector<ReplicaSpec> general;
  for (const ReplicaSpec& replica : scenario.replicas) {
    if (replica.pool == PoolPurpose::kGeneral) general.push_back(replica);
  }
  if (general.empty()) general.push_back(scenario.replicas.front());
  const std::size_t wanted = replicas - list.size();
  std::vector<ReplicaSpec> all;
  for (std::size_t i = 0; i < wanted; ++i) all.push_back(general[i % general.size()]);
  all.insert(all.end(), list.begin(), list.end());
  scenario.replicas = std::move(all);
  scenario.arrivals.rate *= factor;
  if (factor > 1) {
    scenario.measure.requests = static_cast<std::uint32_t>(
        std::min<double>(kMostRequests, std::round(scenario.measure.requests * factor)));
  }
  scenario.arrivals.users =
      static_cast<std::uint32_t>(std::lround(scenario.arrivals.users * factor));
}

void set_sharing(Scenario& scenario, double share) {
  const double wanted = 1 / (1 - std::clamp(share, 0.0, 0.99));
  WorkloadSpec& workload = scenario.workload;
  if (workload.turns_law == TurnsLaw::kGeometric) {
    workload.turns_mean = wanted;
    return;
  }
  // Rounding moves the mean, most of all near 1, so the law's parameter is searched.
  double low = 1e-6;
  double high = 2 * wanted + 1;
  for (int i = 0; i < 100; ++i) {
    workload.turns_mean = (low + high) / 2;
    (workload.expected_turns() < wanted ? low : high) = workload.turns_mean;
  }
}

}  // namespace pointsman::sim
