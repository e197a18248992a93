#include "sim/run_result.h"

#include <array>

namespace pointsman::sim {
namespace {

using Mean = MeasureMean;
using R = RunResult;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::array kMeasures = {
    Measure{"requests", "measured requests", Mean::kArithmetic, &R::requests},
    Measure{"offered_rps", "measured requests per second of their arrival", Mean::kArithmetic,
            &R::offered_rps},
    Measure{"ttft_mean_s", "time to first token, mean", Mean::kGeometric, &R::ttft_mean_s},
    Measure{"ttft_p50_s", "time to first token, median", Mean::kGeometric, &R::ttft_p50_s},
    Measure{"ttft_p90_s", "time to first token, 90th percentile", Mean::kGeometric, &R::ttft_p90_s},
    Measure{"ttft_p99_s", "time to first token, 99th percentile", Mean::kGeometric, &R::ttft_p99_s},
    Measure{"ttft_p50_short_s", "time to first token of short requests, median", Mean::kGeometric,
            &R::ttft_p50_short_s},
    Measure{"ttft_p99_short_s", "time to first token of short requests, 99th percentile",
            Mean::kGeometric, &R::ttft_p99_short_s},
    Measure{"ttft_p50_long_s",
            "time to first token of long requests (by prompt or by output limit), median",
            Mean::kGeometric, &R::ttft_p50_long_s},
    Measure{"ttft_p99_long_s",
            "time to first token of long requests (by prompt or by output limit), 99th percentile",
            Mean::kGeometric, &R::ttft_p99_long_s},
    Measure{"tpot_p50_s", "time per output token after the first, per request, median",
            Mean::kGeometric, &R::tpot_p50_s},
    Measure{"tpot_p99_s", "time per output token after the first, per request, 99th percentile",
            Mean::kGeometric, &R::tpot_p99_s},
    Measure{"e2e_mean_s", "arrival to last token, mean", Mean::kGeometric, &R::e2e_mean_s},
    Measure{"e2e_p50_s", "arrival to last token, median", Mean::kGeometric, &R::e2e_p50_s},
    Measure{"e2e_p99_s", "arrival to last token, 99th percentile", Mean::kGeometric, &R::e2e_p99_s},
    Measure{"prefix_hit_rate",
            "prompt tokens found in the cache at first admission over all prompt tokens",
            Mean::kArithmetic, &R::prefix_hit_rate, 0, 1},
    Measure{"prefix_hit_bound",
            "prompt tokens that an earlier request had as well over all prompt tokens",
            Mean::kArithmetic, &R::prefix_hit_bound, 0, 1},
    Measure{"predicted_hit_rate",
            "prompt tokens that the balancer believed cached over all prompt tokens",
            Mean::kArithmetic, &R::predicted_hit_rate, 0, 1},
    Measure{"follow_up_share", "share of requests that are a conversation's second or later turn",
            Mean::kArithmetic, &R::follow_up_share, 0, 1},
    Measure{"goodput_rps", "requests per second within the limits on TTFT and TPOT",
            Mean::kArithmetic, &R::goodput_rps},
    Measure{"closed_loop_rps", "completions per second of a closed loop without thinking",
            Mean::kArithmetic, &R::closed_loop_rps},
    Measure{"mean_kv", "KV blocks held by running requests over all, mean over time and replicas",
            Mean::kArithmetic, &R::mean_kv, 0, 1},
    Measure{"busy_share", "share of time in a step, mean over replicas", Mean::kArithmetic,
            &R::busy_share, 0, 1},
    Measure{"cv_load",
            "coefficient of variation over replicas of requests in flight, mean over time",
            Mean::kArithmetic, &R::cv_load},
    Measure{"mean_in_flight", "requests in flight, mean over time", Mean::kArithmetic,
            &R::mean_in_flight},
    Measure{"queue_growth_rps", "growth of the requests in flight per second", Mean::kArithmetic,
            &R::queue_growth_rps, -kInfinity},
    Measure{"over_capacity", "share of runs in which the load exceeded the capacity of a pool",
            Mean::kShare, &R::over_capacity},
    Measure{"valve_openings", "requests sent elsewhere since their home was saturated",
            Mean::kArithmetic, &R::valve_openings},
    Measure{"all_saturated", "requests that met only saturated replicas", Mean::kArithmetic,
            &R::all_saturated},
    Measure{"pool_fallbacks", "requests whose own pool had no usable replica", Mean::kArithmetic,
            &R::pool_fallbacks},
    Measure{"replica_share_min",
            "share of the measured requests that the replica with fewest of them got",
            Mean::kArithmetic, &R::replica_share_min, 0, 1},
    Measure{"replica_share_max",
            "share of the measured requests that the replica with most of them got",
            Mean::kArithmetic, &R::replica_share_max, 0, 1},
    Measure{"preemptions", "requests put back by an engine for want of blocks", Mean::kArithmetic,
            &R::preemptions},
    Measure{"retried", "requests sent again after a replica was lost", Mean::kArithmetic,
            &R::retried},
    Measure{"failed", "requests without a complete answer", Mean::kArithmetic, &R::failed},
    Measure{"trace_left_out", "lines of the trace without prompt or answer tokens, left out",
            Mean::kArithmetic, &R::trace_left_out},
    Measure{"trace_late", "lines of the trace out of the order of time, taken with the line before",
            Mean::kArithmetic, &R::trace_late},
    Measure{"trace_cut", "requests of the trace cut to what the engines can hold",
            Mean::kArithmetic, &R::trace_cut},
    Measure{"requests_cut", "requests of generated conversations cut to what the engines can hold",
            Mean::kArithmetic, &R::requests_cut},
    Measure{"conversations_cut",
            "generated conversations that ended early, since the next turn was more than the "
            "engines can hold",
            Mean::kArithmetic, &R::conversations_cut},
    Measure{"faults_missed", "faults of the scenario that came after the last request",
            Mean::kArithmetic, &R::faults_missed},
    Measure{"balancers", "balancers", Mean::kArithmetic, &R::balancers},
    Measure{"poll_s", "seconds between two reports; 0: live", Mean::kArithmetic, &R::poll_s},
    Measure{"exchange_s", "seconds between two exchanges of charges; 0: none", Mean::kArithmetic,
            &R::exchange_s},
    Measure{"replicas_general", "replicas in the general pool", Mean::kArithmetic,
            &R::replicas_general},
    Measure{"replicas_long_context", "replicas in the pool for long prompts", Mean::kArithmetic,
            &R::replicas_long_context},
    Measure{"replicas_long_generation", "replicas in the pool for long generations",
            Mean::kArithmetic, &R::replicas_long_generation},
};

}  // namespace

std::span<const Measure> measures() {
  return kMeasures;
}

const Measure* find_measure(std::string_view key) {
  for (const Measure& measure : kMeasures) {
    if (measure.key == key) return &measure;
  }
  return nullptr;
}

}  // namespace pointsman::sim
