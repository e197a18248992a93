#include "experiments/random_setting.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <span>
#include <string>

#include "sim/chance.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

constexpr std::uint32_t kUsersPerReplica = 64;

// Draws by name and keeps what it drew.
class Lot {
 public:
  explicit Lot(std::uint64_t seed) : rng_(mixed(seed)) {}

  double between(std::string_view name, double low, double high) {
    return keep(name, low + (high - low) * rng_.unit());
  }
  // Evenly on the logarithms: as likely to double as to halve.
  double by_factor(std::string_view name, double low, double high) {
    return keep(name, low * std::pow(high / low, rng_.unit()));
  }
  template <typename T, std::size_t kCount>
  T one_of(std::string_view name, const std::array<T, kCount>& choices) {
    const T chosen = choices[rng_.below(kCount)];
    drawn_.set(name, Value(chosen));
    return chosen;
  }
  bool chance(double share) { return rng_.unit() < share; }
  double keep(std::string_view name, double value) {
    drawn_.set(name, value);
    return value;
  }
  Record take() { return std::move(drawn_); }

 private:
  Rng rng_;
  Record drawn_;
};

// Six to one to one, as far as it goes.
std::vector<ReplicaSpec> fleet(const EngineConfig& engine, std::uint32_t replicas) {
  const std::uint32_t special = replicas < 3 ? 0 : std::max(1U, (replicas + 4) / 8);
  std::vector<ReplicaSpec> list(replicas);
  for (std::uint32_t i = 0; i < replicas; ++i) {
    list[i].engine = engine;
    if (i >= replicas - special) {
      list[i].pool = PoolPurpose::kLongGeneration;
    } else if (i >= replicas - 2 * special) {
      list[i].pool = PoolPurpose::kLongContext;
    }
  }
  return list;
}

void draw_workload(Lot& lot, std::optional<double> sharing, Scenario& scenario) {
  WorkloadSpec& workload = scenario.workload;
  workload.first_prompt = {.median = lot.by_factor("first_prompt_median", 500, 5'000),
                           .sigma = lot.between("first_prompt_sigma", 0.25, 1.2)};
  workload.follow_up = {.median = lot.by_factor("follow_up_median", 100, 1'000),
                        .sigma = lot.between("follow_up_sigma", 0.5, 1.0)};
  workload.output = {.median = lot.by_factor("output_median", 100, 500),
                     .sigma = lot.between("output_sigma", 0.6, 1.2),
                     .high = 4'000};
  workload.turns_law = TurnsLaw::kGeometric;
  const double drawn_sharing = lot.between("sharing", 0.3, 0.8);
  set_sharing(scenario, lot.keep("sharing", sharing.value_or(drawn_sharing)));
  workload.document_share = lot.chance(0.7) ? lot.by_factor("document_share", 0.0005, 0.005) : 0;
  workload.document_high = 110'000;
  workload.long_generation_share =
      lot.chance(0.7) ? lot.by_factor("long_generation_share", 0.001, 0.01) : 0;
  workload.long_generation = {.median = 5'000, .sigma = 0.5, .low = 500, .high = 16'000};
  workload.think_s = lot.by_factor("think_s", 5, 30);
  if (lot.chance(0.5)) {
    workload.system_prompts =
        lot.one_of("system_prompts", std::array<std::uint32_t, 4>{1, 4, 16, 64});
    workload.system_prompt = {.median = lot.by_factor("system_prompt_median", 300, 4'000)};
  }
  scenario.arrivals.cv = lot.between("arrival_cv", 1, 2);
}

}  // namespace

RandomSetting draw_setting(std::uint64_t seed, const Registry& registry,
                           std::optional<int> replicas, std::optional<double> sharing) {
  Lot lot(seed);
  RandomSetting setting;
  Scenario& scenario = setting.scenario;
  scenario.name = "setting " + std::to_string(seed);

  const std::span<const EnginePreset> engines = engine_presets();
  std::array<std::uint32_t, 6> numbers{};
  for (std::uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  const EnginePreset& preset = engines[lot.one_of("engine", numbers) % engines.size()];
  EngineConfig engine = preset.config;
  const double blocks = lot.by_factor("kv_blocks_factor", 0.6, 1.5);
  engine.blocks = static_cast<std::uint32_t>(std::lround(engine.blocks * blocks));
  const auto drawn_replicas = lot.one_of("replicas", std::array<std::uint32_t, 5>{4, 6, 8, 12, 16});
  const auto count = replicas ? static_cast<std::uint32_t>(std::max(1, *replicas)) : drawn_replicas;
  scenario.replicas = fleet(engine, count);
  scenario.balancers.count = lot.one_of("balancers", std::array<std::uint32_t, 4>{1, 2, 4, 8});
  scenario.balancers.poll = from_seconds(lot.by_factor("poll_s", 0.5, 5));
  draw_workload(lot, sharing, scenario);
  scenario.measure.overhead = std::chrono::milliseconds(20);

  Scenario loop = scenario;
  loop.measure.requests = 1;
  loop.measure.closed_loop_users = kUsersPerReplica;
  Arm plain;
  plain.policy.preset = "round_robin";
  setting.capacity_rps = run(loop, plain, registry, seed).closed_loop_rps;
  scenario.arrivals.rate = setting.capacity_rps * lot.between("load", 0.35, 0.75);

  setting.drawn = lot.take();
  setting.drawn.set("engine", preset.name).set("replicas", count);
  setting.drawn.set("capacity_rps", setting.capacity_rps).set("rate_rps", scenario.arrivals.rate);
  return setting;
}

}  // namespace pointsman::sim
