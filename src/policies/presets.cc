#include <string>
#include <utility>

#include "policies/register.h"

namespace pointsman {
namespace {

StageSpec stage(std::string type, OptionMap options = {}, double weight = 1.0) {
  return {std::move(type), weight, std::move(options)};
}

}  // namespace

void add_presets(Registry& registry) {
  registry.add_preset(
      "least_work",
      "least prefill work before the first token, cached prefixes, decode and KV use weighed in; "
      "the default",
      Stability::kStable,
      {.filters = {stage("not_full")},
       .sampler = stage("sample", {{"avoid_saturated", false}, {"keep_holder", true}}),
       .scorers = {stage("least_work")}});
  registry.add_preset("round_robin", "each replica in turn, in proportion to weight",
                      Stability::kStable, {.picker = stage("round_robin")});
  registry.add_preset("random", "any replica, in proportion to weight", Stability::kStable,
                      {.picker = stage("random")});
  registry.add_preset("least_connections", "fewest requests in flight over weight",
                      Stability::kStable,
                      {.sampler = stage("sample"), .scorers = {stage("in_flight")}});
  registry.add_preset("least_response_time",
                      "lowest peak EWMA of time to first token times requests in flight and one",
                      Stability::kStable,
                      {.sampler = stage("sample"), .scorers = {stage("peak_ewma")}});
  registry.add_preset("ring_hash",
                      "consistent hash of session or prompt beginning on a ring, bounded load; as "
                      "in Envoy the ring is scaled to the number of replicas, so a change of that "
                      "moves a few sessions of other replicas too, where session_affinity moves "
                      "none and maglev almost none",
                      Stability::kStable, {.sampler = stage("ring"), .picker = stage("in_order")});
  registry.add_preset("maglev",
                      "consistent hash of session or prompt beginning by a Maglev table, bounded "
                      "load",
                      Stability::kStable,
                      {.sampler = stage("maglev"), .picker = stage("in_order")});
  registry.add_preset(
      "least_kv", "of two replicas drawn by chance the one with more KV cache room",
      Stability::kStable,
      {.sampler = stage("sample", {{"choices", 2.0}}), .scorers = {stage("least_kv")}});
  registry.add_preset(
      "global_least_kv",
      "the most KV cache room of all; herds between two reports, kept for "
      "comparison",
      Stability::kStable,
      {.sampler = stage("sample"), .scorers = {stage("least_kv", {{"tolerance", 0.0}})}});
  registry.add_preset(
      "prefix_aware", "a replica lately sent the same first 512 tokens, else by KV cache room",
      Stability::kStable, {.sampler = stage("prefix_holders"), .scorers = {stage("least_kv")}});
  registry.add_preset(
      "weighted", "weighted sum of predicted prefix hit, KV cache room and queue room",
      Stability::kStable,
      {.sampler = stage("sample"),
       .scorers = {stage("prefix_hit", {}, 2.0), stage("kv_headroom"), stage("queue_room")}});
  registry.add_preset("session_affinity",
                      "the session's home replica; by KV cache room while the home is saturated",
                      Stability::kStable,
                      {.sampler = stage("session_home"), .scorers = {stage("least_kv")}});
}

}  // namespace pointsman
