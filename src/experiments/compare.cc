#include "experiments/compare.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>

#include "experiments/run_parallel.h"
#include "experiments/statistics.h"
#include "sim/cluster.h"

namespace pointsman::sim {
namespace {

std::string_view word(PoolPurpose purpose) {
  switch (purpose) {
    case PoolPurpose::kGeneral:
      return "general";
    case PoolPurpose::kLongContext:
      return "long_context";
    case PoolPurpose::kLongGeneration:
      return "long_generation";
  }
  return "";
}

std::string_view word(IndexKind kind) {
  switch (kind) {
    case IndexKind::kOwn:
      return "own";
    case IndexKind::kShared:
      return "shared";
    case IndexKind::kExact:
      return "exact";
  }
  return "";
}

std::string_view word(ArrivalKind kind) {
  switch (kind) {
    case ArrivalKind::kSemiOpen:
      return "semi_open";
    case ArrivalKind::kOpen:
      return "open";
    case ArrivalKind::kClosed:
      return "closed";
  }
  return "";
}

std::string_view word(FaultKind kind) {
  switch (kind) {
    case FaultKind::kDies:
      return "dies";
    case FaultKind::kRestarts:
      return "restarts";
    case FaultKind::kSlows:
      return "slows";
    case FaultKind::kStopsReporting:
      return "stops_reporting";
    case FaultKind::kReports:
      return "reports";
    case FaultKind::kJoins:
      return "joins";
  }
  return "";
}

Record length_record(const LengthLaw& law) {
  Record record;
  record.set("median", law.median).set("sigma", law.sigma).set("low", law.low);
  record.set("high", law.high);
  return record;
}

Record engine_record(const EngineConfig& engine) {
  Record record;
  record.set("blocks", engine.blocks);
  record.set("max_num_batched_tokens", engine.max_num_batched_tokens);
  record.set("max_num_seqs", engine.max_num_seqs);
  record.set("step_s", engine.step_s).set("weights_s", engine.weights_s);
  record.set("token_s", engine.token_s).set("context_s", engine.context_s);
  record.set("sequence_s", engine.sequence_s).set("attention_ratio", engine.attention_ratio);
  return record;
}

bool same(const ReplicaSpec& a, const ReplicaSpec& b) {
  const auto key = [](const ReplicaSpec& one) {
    const EngineConfig& e = one.engine;
    return std::tuple(e.blocks, e.max_num_batched_tokens, e.max_num_seqs, e.step_s, e.weights_s,
                      e.token_s, e.context_s, e.sequence_s, e.attention_ratio, one.weight, one.pool,
                      one.slowness);
  };
  return key(a) == key(b);
}

// Equal neighbours are one entry with their number.
Value::List fleet_list(const std::vector<ReplicaSpec>& replicas) {
  Value::List list;
  for (std::size_t i = 0; i < replicas.size();) {
    std::size_t end = i + 1;
    while (end < replicas.size() && same(replicas[i], replicas[end])) ++end;
    Record record;
    record.set("count", static_cast<std::uint64_t>(end - i));
    record.set("pool", word(replicas[i].pool)).set("weight", replicas[i].weight);
    record.set("slowness", replicas[i].slowness);
    record.set("engine", engine_record(replicas[i].engine));
    list.emplace_back(std::move(record));
    i = end;
  }
  return list;
}

Record balancers_record(const BalancersSpec& spec) {
  Record record;
  record.set("count", spec.count).set("poll_s", to_seconds(spec.poll));
  record.set("phase", spec.phase == PollPhase::kRandom ? "random" : "synchronised");
  record.set("signal_delay_s", to_seconds(spec.signal_delay));
  record.set("exchange_s", to_seconds(spec.exchange));
  record.set("index", word(spec.index)).set("event_delay_s", to_seconds(spec.event_delay));
  record.set("block_tokens", spec.block_tokens);
  record.set("index_bytes", static_cast<std::uint64_t>(spec.index_bytes));
  record.set("long_context_tokens", spec.segregation.long_context_tokens);
  record.set("long_generation_tokens", spec.segregation.long_generation_tokens);
  record.set("saturation_kv", spec.saturation.kv);
  record.set("saturation_queue", spec.saturation.queue);
  record.set("saturation_prefill_tokens", spec.saturation.prefill_tokens);
  return record;
}

Record workload_record(const WorkloadSpec& spec) {
  Record record;
  record.set("first_prompt", length_record(spec.first_prompt));
  record.set("follow_up", length_record(spec.follow_up));
  record.set("output", length_record(spec.output));
  record.set("turns", spec.turns_law == TurnsLaw::kLognormal ? "lognormal" : "geometric");
  record.set("turns_mean", spec.turns_mean).set("turns_sigma", spec.turns_sigma);
  record.set("document_share", spec.document_share);
  record.set("document_low", spec.document_low).set("document_high", spec.document_high);
  record.set("long_generation_share", spec.long_generation_share);
  record.set("long_generation", length_record(spec.long_generation));
  record.set("max_tokens", spec.max_tokens).set("long_max_tokens", spec.long_max_tokens);
  record.set("think_s", spec.think_s).set("system_prompts", spec.system_prompts);
  record.set("system_zipf", spec.system_zipf);
  record.set("system_prompt", length_record(spec.system_prompt));
  record.set("system_share", spec.system_share).set("max_context", spec.max_context);
  return record;
}

std::string arm_name(const Arm& arm) {
  const std::string policy = arm.policy.preset.empty() ? "stages" : arm.policy.preset;
  return arm.label.empty() ? policy : policy + " " + arm.label;
}

}  // namespace

std::vector<std::vector<RunResult>> run_arms(const Scenario& scenario, std::span<const Arm> arms,
                                             const Registry& registry,
                                             const CompareOptions& options) {
  const auto seeds = static_cast<std::size_t>(options.seeds);
  // Seeds outside, so that the first figures of all arms come early where a run is cut short.
  const std::vector<RunResult> flat = run_parallel(
      arms.size() * seeds, options.jobs,
      [&](std::size_t i) {
        return run(scenario, arms[i % arms.size()], registry, options.first_seed + i / arms.size());
      },
      [&](std::size_t ended) {
        if (options.progress) options.progress(ended, arms.size() * seeds);
      });
  std::vector<std::vector<RunResult>> results(arms.size());
  for (std::size_t i = 0; i < flat.size(); ++i) results[i % arms.size()].push_back(flat[i]);
  return results;
}

Record arm_row(const Arm& arm, std::span<const RunResult> results) {
  Record row;
  row.set("policy", arm.policy.preset.empty() ? "stages" : arm.policy.preset);
  row.set("arm", arm.label);
  std::vector<double> values;
  for (const Measure& measure : measures()) {
    values.clear();
    for (const RunResult& result : results) {
      if (std::isfinite(result.*measure.value)) values.push_back(result.*measure.value);
    }
    if (values.empty()) {
      row.set(measure.key, Value());
      continue;
    }
    row.set(measure.key, measure.mean == MeasureMean::kGeometric ? geometric_mean(values)
                                                                 : arithmetic_mean(values));
  }
  return row;
}

Record scenario_record(const Scenario& scenario) {
  Record record;
  record.set("name", scenario.name).set("segregated", scenario.segregated);
  record.set("replicas", fleet_list(scenario.replicas));
  record.set("balancers", balancers_record(scenario.balancers));
  record.set("workload", workload_record(scenario.workload));
  Record arrivals;
  arrivals.set("kind", word(scenario.arrivals.kind)).set("rate", scenario.arrivals.rate);
  arrivals.set("cv", scenario.arrivals.cv).set("users", scenario.arrivals.users);
  record.set("arrivals", std::move(arrivals));
  const MeasureSpec& spec = scenario.measure;
  Record measure;
  measure.set("requests", spec.requests).set("length_s", to_seconds(spec.length));
  measure.set("warm_up", spec.warm_up).set("overhead_s", to_seconds(spec.overhead));
  measure.set("goodput_ttft_s", spec.goodput_ttft_s).set("goodput_tpot_s", spec.goodput_tpot_s);
  measure.set("closed_loop_users", spec.closed_loop_users);
  record.set("measure", std::move(measure));
  Value::List faults;
  for (const FaultSpec& spec_of_fault : scenario.faults) {
    Record fault;
    fault.set("kind", word(spec_of_fault.kind)).set("at_s", to_seconds(spec_of_fault.at));
    fault.set("replica", spec_of_fault.replica).set("factor", spec_of_fault.factor);
    faults.emplace_back(std::move(fault));
  }
  record.set("faults", std::move(faults));
  return record;
}

std::vector<Column> arm_columns(const Scenario& scenario) {
  char goodput[64];
  std::snprintf(goodput, sizeof goodput, "good/s (TTFT<=%g s)", scenario.measure.goodput_ttft_s);
  std::vector<Column> columns = {
      {"policy", "policy"},
      {"arm", "arm"},
      {"ttft_p50_s", "p50 TTFT ms", 0, 1'000},
      {"ttft_p99_s", "p99 TTFT ms", 0, 1'000},
      {"ttft_p99_short_s", "p99 short ms", 0, 1'000},
      {"prefix_hit_rate", "hit %", 1, 100},
      {"goodput_rps", goodput, 2},
      {"mean_kv", "KV %", 1, 100},
      {"busy_share", "busy %", 1, 100},
      {"cv_load", "CV of load", 2},
  };
  if (scenario.measure.closed_loop_users > 0) {
    columns.push_back({"closed_loop_rps", "closed loop/s", 2});
  }
  return columns;
}

std::vector<std::string> arm_notes(std::span<const Arm> arms,
                                   std::span<const std::vector<RunResult>> results) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    std::size_t over = 0;
    double growth = 0;
    double failed = 0;
    for (const RunResult& result : results[i]) {
      if (result.over_capacity > 0) {
        ++over;
        growth += result.queue_growth_rps;
      }
      failed += result.failed;
    }
    char text[160];
    if (over > 0) {
      std::snprintf(text, sizeof text,
                    "%s: above capacity in %zu of %zu runs; the queue grew by %.2f requests/s. Its "
                    "times say how long the run was.",
                    arm_name(arms[i]).c_str(), over, results[i].size(),
                    growth / static_cast<double>(over));
      notes.emplace_back(text);
    }
    if (failed > 0) {
      std::snprintf(text, sizeof text, "%s: %.1f requests a run had no complete answer.",
                    arm_name(arms[i]).c_str(), failed / static_cast<double>(results[i].size()));
      notes.emplace_back(text);
    }
  }
  return notes;
}

}  // namespace pointsman::sim
