#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "core/context.h"
#include "core/decision.h"
#include "core/engine_caches.h"
#include "core/features.h"
#include "core/fleet_view.h"
#include "core/ledger.h"
#include "core/pipeline.h"
#include "core/prefix_index.h"
#include "core/prefix_source.h"
#include "core/prefix_trust.h"
#include "core/response_pins.h"
#include "core/signals.h"

namespace pointsman {

// From where a request is long enough for a pool of its own.
struct SegregationLimits {
  std::uint32_t long_context_tokens = 32'000;    // prompt tokens, more than
  std::uint32_t long_generation_tokens = 4'000;  // the client's output limit, more than
};

// The purpose of the pool that a request belongs to: long prompt before long generation before
// general.
[[nodiscard]] PoolPurpose purpose_of(const Features& features, const SegregationLimits& limits);

// How a request ended, as far as the replica is concerned.
struct Outcome {
  Feedback::Event event = Feedback::Event::kFinished;  // not kFirstToken
  // From the answer's usage; nothing where it carried none.
  std::optional<std::uint32_t> prompt_tokens{};
  std::optional<std::uint32_t> cached_tokens{};
};

// Why a request went to a replica without its prompt's beginning although others have it.
enum class Replication : std::uint8_t {
  kSaturated,  // all of those were saturated
  kLessWork,   // the policy found it better all the same
};
inline constexpr std::size_t kReplications = 2;

constexpr std::string_view label(Replication replication) {
  return replication == Replication::kSaturated ? "saturated" : "less_work";
}

// The decision core: what the proxy, the endpoint picker and the simulator share. It owns the state
// that decisions read (ledger, signals, prefix index, the engines' own caches as they tell them,
// response pins, one pipeline per pool) and is told what becomes of each request. No clock, no I/O,
// no lock: the same calls with the same times and the same seed give the same decisions, bit for
// bit.
//
// Not thread-safe. Hosts with several threads use runtime/shared_router.h, which has the same calls
// under one lock: a decision takes under a microsecond, a request's relay twenty.
class Router {
 public:
  struct Options {
    SegregationLimits segregation;
    SaturationLimits saturation;
    PrefixIndex::Options index;
    EngineCaches::Options engine_caches;
    // Asked and told instead of the router's own index, which then stays empty, and instead of
    // what the engines say. Not owned; outlives the router. nullptr: the own index.
    PrefixSource* prefixes = nullptr;
    ResponsePins::Options pins;
    std::uint64_t seed = 1;
    // Prompt tokens computed per second, until learnt from streams.
    double initial_prefill_rate = 5'000;
    // Tokens of one block of the index: turns a replica's capacity into blocks.
    std::uint32_t block_tokens = 16;
  };

  // `pipelines` by PoolIndex.
  Router(const Options& options, std::vector<std::unique_ptr<Pipeline>> pipelines);

  // What any pool's policy wants to know of a request.
  [[nodiscard]] Needs needs() const { return needs_; }

  // Chooses replicas for a request and books it on the first of them, in one step. `excluded` lists
  // replicas that have already failed this request. The decision's charge must come back through
  // finished(), whatever happens.
  //
  // A prompt's cached part is what the engine itself says it holds, for a replica whose events are
  // trusted and blocks that are of token ids; for others what was sent there and should be cached.
  // Of either, the share that has lately come true there (core/prefix_trust.h).
  //
  // Order: the response's own replica if the request continues one and it is usable (kReject, with
  // reason kPinned, where that replica is excluded: the conversation is nowhere else) → the pool by
  // purpose (general where that pool has no candidate, counted) → the pool's pipeline over the
  // usable replicas that serve the model. No candidate: kReject.
  [[nodiscard]] Decision decide(const Features& features, const FleetView& fleet,
                                std::span<const ReplicaIndex> excluded, TimePoint now);

  // A stream's first token came.
  void first_token(Charge& charge, TimePoint now);
  // The request ended; the charge is released.
  void finished(Charge charge, const Outcome& outcome, TimePoint now);
  // A replica answered with this response id (hash), which later requests may continue.
  void learn_response(std::uint64_t response_id, ReplicaIndex replica, TimePoint now);

  // A report is about to be asked for / arrived. `signals.window` is what report_opened() returned.
  // A report that was asked for before the one in force is ignored. Values outside of their ranges
  // count as not reported; KV use above 1 counts as 1.
  [[nodiscard]] ReportWindow report_opened(ReplicaIndex replica);
  void report_applied(ReplicaIndex replica, const Signals& signals);

  // For routers that exchange charges: what this one has outstanding per replica, appended to
  // `out`, and what a peer told of its own; see Ledger. Between two exchanges of 20 to 50 ms little
  // is lost against counting every request at once.
  void own_loads(TimePoint now, std::vector<PeerLoad>& out);
  void peer_applied(PeerIndex peer, std::span<const PeerLoad> loads) {
    ledger_.apply_peer(peer, loads);
  }

  // The replica restarted or left: its cache, signals, learnt speed and pins are forgotten. Charges
  // of requests still under way stay until they end.
  void forget(ReplicaIndex replica);

  // Events of the replica's engine have come.
  void events_heard(ReplicaIndex replica);

  // The replica's engine is another process, or has emptied its cache, by its own word: what is
  // believed of its cache is forgotten. What its events say is its feed's to forget.
  void forget_cache(ReplicaIndex replica);

  // Prompt tokens per second that the replica computes, as learnt from streams.
  [[nodiscard]] double prefill_rate(ReplicaIndex replica) const;

  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] const Signals& signals(ReplicaIndex replica) const;
  [[nodiscard]] const PrefixIndex& index() const { return index_; }
  // Requests whose prompts were known as token ids, sent to the replica while its events were
  // trusted, and of which it has computed two blocks or more, by the end of which no event had been
  // heard. Each must be followed by one.
  [[nodiscard]] std::uint64_t computed_prompts(ReplicaIndex replica) const {
    return replica < computed_prompts_.size() ? computed_prompts_[replica] : 0;
  }
  // How far predictions of cached tokens come true, by replica, and what follows from it.
  [[nodiscard]] const PrefixTrust& prefix_trust() const { return prefix_trust_; }
  // For the feed of the engines' events, which tells it what they say.
  [[nodiscard]] EngineCaches& engine_caches() { return engine_caches_; }
  [[nodiscard]] const EngineCaches& engine_caches() const { return engine_caches_; }

  // Counters since start, for metrics.
  struct Counters {
    std::uint64_t decisions[kReasons] = {};
    std::uint64_t rejected = 0;
    std::uint64_t pool_fallbacks = 0;
    // Requests that went to a replica with less than half of a long beginning of their prompt that
    // others hold: it is held by one more from now on.
    std::uint64_t replications[kReplications] = {};
    // Of requests whose answer carried usage, by what the prediction was made from.
    struct Cached {
      std::uint64_t answers = 0;
      std::uint64_t prompt_tokens = 0;
      std::uint64_t predicted_tokens = 0;  // expected to be cached
      std::uint64_t actual_tokens = 0;     // found cached by the engine
      std::uint64_t missed_by_tokens = 0;  // sum of the differences, whichever way
    };
    std::array<Cached, kKnowledges> cached{};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct Learnt {
    double tokens = 0;  // decayed sums of prefill tokens and of the seconds they took
    double seconds = 0;
  };
  // What the feedback of a charge needs to know beyond the ledger's entry.
  struct Booked {
    PoolIndex pool = 0;
    bool stream = false;
    bool looked_up = false;  // its prefix, before the choice
    Knowledge knowledge = Knowledge::kSent;
    std::uint32_t block_tokens = 0;
    std::uint64_t events_heard = 0;
    std::uint32_t matched_tokens = 0;           // by the index's word
    std::uint32_t predicted_cached_tokens = 0;  // the believed share of that
  };

  void grow(std::size_t replicas);
  // The pool for the request and its candidates in it; not found where nobody can serve it.
  struct Choice {
    PoolIndex pool = 0;
    bool found = false;
    bool fallback = false;
    std::span<const ReplicaIndex> candidates;
  };
  [[nodiscard]] Choice choose_pool(const Features& features, const FleetView& fleet,
                                   std::span<const ReplicaIndex> excluded);
  // The usable replicas of the pool for the model that are not excluded. Valid until the next call.
  [[nodiscard]] std::span<const ReplicaIndex> candidates(const PoolView& pool,
                                                         std::string_view model,
                                                         std::span<const ReplicaIndex> excluded);
  void look_up_prefix(const Features& features, TimePoint now);
  void apply_engine_caches(std::span<const BlockHash> exact, TimePoint now);
  [[nodiscard]] Knowledge knowledge_of(const Features& features, ReplicaIndex replica) const;
  void apply_trust(const Features& features);
  [[nodiscard]] std::uint32_t unscaled_blocks(ReplicaIndex replica) const;
  void count_replication(const Context& context, PoolIndex pool,
                         std::span<const ReplicaIndex> excluded, ReplicaIndex chosen);
  void compare(ReplicaIndex replica, const Booked& booked, std::uint32_t prompt_tokens,
               const Outcome& outcome);
  void count_computed(ReplicaIndex replica, const Booked& booked, std::uint32_t prompt,
                      std::uint32_t cached);
  // Gives the index the capacity that the replica is taken to have.
  void assume_capacity(ReplicaIndex replica);
  void learn_rate(ReplicaIndex replica, std::int64_t tokens, Duration took);

  Options options_;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
  Needs needs_;
  Ledger ledger_;
  PrefixIndex index_;
  PrefixTrust prefix_trust_;
  EngineCaches engine_caches_;
  ResponsePins pins_;
  Rng rng_;
  std::vector<Signals> signals_;                 // by ReplicaIndex
  std::vector<Learnt> learnt_;                   // by ReplicaIndex
  std::vector<std::uint32_t> matched_blocks_;    // by ReplicaIndex; all zero between decisions
  std::vector<Booked> booked_;                   // by Charge::entry()
  std::vector<std::uint64_t> capacities_;        // by ReplicaIndex: blocks, as the index has them
  std::vector<std::uint64_t> computed_prompts_;  // by ReplicaIndex
  std::vector<std::uint64_t> events_heard_;      // by ReplicaIndex
  PrefixMatches matches_;
  std::vector<PrefixMatches::Holder> unscaled_;      // before trust was applied; empty: as matches_
  std::vector<EngineCaches::Match> engine_matches_;  // scratch
  std::vector<ReplicaIndex> candidates_;             // scratch
  Counters counters_;
};

}  // namespace pointsman
