#include "core/router.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace pointsman {
namespace {

// What is left of the learnt prefill rate's sums after one more sample: it speaks of the last
// twenty or so.
constexpr double kRateMemory = 0.95;
// However odd a replica's times look, a plain request's prefill is due within reason.
constexpr double kSlowestRate = 50;
constexpr double kFastestRate = 10'000'000;

// The blocks that engines' own events can be compared with.
std::span<const BlockHash> exact_blocks(const Features& features) {
  return features.blocks.first(
      std::min<std::size_t>(features.exact_blocks, features.blocks.size()));
}

// A beginning of a prompt that is worth a second copy being counted.
constexpr std::uint32_t kLongPrefixTokens = 256;

bool contains(std::span<const ReplicaIndex> list, ReplicaIndex replica) {
  return std::find(list.begin(), list.end(), replica) != list.end();
}

float in_range(float value, float low, float high) {
  // The comparison is false for NaN as well.
  return value >= low && value <= high ? value : Signals::kUnknown;
}

// An engine finds whole blocks of its own and always computes the last one. Where those are longer
// than the index's, a prompt that parts from a cached one within a block of the engine has matched
// beyond what will be found.
void round_to_engine_blocks(const Features& features, std::span<const Signals> signals,
                            PrefixMatches& matches) {
  if (features.exact_blocks == 0 || features.prompt_tokens == 0) return;
  const std::uint32_t tokens =
      features.chain_tokens == 0 ? features.prompt_tokens : features.chain_tokens;
  bool any_zero = false;
  for (PrefixMatches::Holder& holder : matches.holders) {
    const std::uint32_t engine_block = signals[holder.replica].block_tokens;
    if (engine_block <= features.block_tokens || engine_block % features.block_tokens != 0 ||
        holder.blocks > features.exact_blocks) {
      continue;
    }
    const std::uint32_t each = engine_block / features.block_tokens;
    const std::uint32_t whole = std::min(holder.blocks / each, (tokens - 1) / engine_block);
    holder.blocks = whole * each;
    any_zero = any_zero || whole == 0;
  }
  if (!any_zero) return;
  std::erase_if(matches.holders,
                [](const PrefixMatches::Holder& holder) { return holder.blocks == 0; });
}

// Tokens of a block where an engine does not say: more than those of hybrid models have.
constexpr std::uint32_t kLongestBlock = 4'096;

constexpr float kMostRequests = 1e6F;
constexpr float kMostTokens = 1e12F;

}  // namespace

PoolPurpose purpose_of(const Features& features, const SegregationLimits& limits) {
  if (features.prompt_tokens > limits.long_context_tokens) return PoolPurpose::kLongContext;
  if (features.max_output_tokens > limits.long_generation_tokens) {
    return PoolPurpose::kLongGeneration;
  }
  return PoolPurpose::kGeneral;
}

Router::Router(const Options& options, std::vector<std::unique_ptr<Pipeline>> pipelines)
    : options_(options),
      pipelines_(std::move(pipelines)),
      index_(options.index),
      engine_caches_(options.engine_caches),
      pins_(options.pins),
      rng_(options.seed) {
  for (const auto& pipeline : pipelines_) needs_ = needs_ | pipeline->needs();
}

Decision Router::decide(const Features& features, const FleetView& fleet,
                        std::span<const ReplicaIndex> excluded, TimePoint now) {
  ledger_.advance(now);
  grow(fleet.replicas.size());

  Decision decision;
  const std::optional<ReplicaIndex> pinned =
      features.response_id == 0 ? std::nullopt : pins_.find(features.response_id, now);
  const bool pin_holds = pinned && *pinned < fleet.replicas.size() &&
                         fleet.replicas[*pinned].usable &&
                         fleet.replicas[*pinned].pool < pipelines_.size();
  if (pin_holds) {
    decision.reason = Reason::kPinned;
    decision.pool = fleet.replicas[*pinned].pool;
    if (contains(excluded, *pinned)) {
      ++counters_.rejected;
      return decision;
    }
  }

  Choice choice;
  if (!pin_holds) {
    choice = choose_pool(features, fleet, excluded);
    decision.pool = choice.pool;
    decision.pool_fallback = choice.fallback;
    if (choice.fallback) ++counters_.pool_fallbacks;
    if (!choice.found) {
      ++counters_.rejected;
      return decision;
    }
  }

  Pipeline& pipeline = *pipelines_[decision.pool];
  const bool uses_blocks = pipeline.needs().blocks && !features.blocks.empty();
  if (uses_blocks) look_up_prefix(features, now);
  Context context{.features = features,
                  .replicas = fleet.replicas,
                  .signals = signals_,
                  .ledger = ledger_,
                  .matched_blocks = matched_blocks_,
                  .holders = matches_.holders,
                  .shared_blocks = matches_.shared_blocks,
                  .limits = options_.saturation,
                  .now = now,
                  .rng = rng_,
                  .believed_shares = prefix_trust_.shares(),
                  .engine_caches = exact_blocks(features).empty() ? nullptr : &engine_caches_,
                  .shared_index = options_.prefixes != nullptr};

  if (pin_holds) {
    decision.order[0] = *pinned;
    decision.count = 1;
  } else {
    decision.count =
        static_cast<std::uint8_t>(pipeline.choose(context, choice.candidates, decision.order));
    decision.reason = context.reason;
    if (decision.reason == Reason::kPolicy && context.cached_tokens(decision.order[0]) > 0) {
      decision.reason = Reason::kPrefix;
    }
  }
  assert(decision.count > 0);
  decision.verdict = Decision::Verdict::kSend;
  ++counters_.decisions[static_cast<std::size_t>(decision.reason)];

  const ReplicaIndex replica = decision.order[0];
  decision.predicted_cached_tokens = context.cached_tokens(replica);
  const Cost cost{features.prompt_tokens, context.uncached_tokens(replica)};
  TimePoint due{};
  if (!features.stream) {
    const auto work =
        static_cast<double>(ledger_[replica].all_prefill_tokens() + cost.uncached_tokens);
    due = now + from_seconds(work / prefill_rate(replica));
  }
  pipeline.picked(context, replica);
  decision.charge = ledger_.book(replica, cost, now, due);
  const std::uint32_t entry = decision.charge.entry();
  if (entry >= booked_.size()) booked_.resize(std::size_t{entry} + 1);
  Booked& booked = booked_[entry];
  booked = {.pool = decision.pool, .stream = features.stream, .looked_up = uses_blocks};

  if (uses_blocks) {
    booked.knowledge = knowledge_of(features, replica);
    booked.events_heard = events_heard_[replica];
    booked.block_tokens = features.block_tokens;
    booked.matched_tokens = cached_tokens(features, unscaled_blocks(replica));
    booked.predicted_cached_tokens = decision.predicted_cached_tokens;
    if (!pin_holds) count_replication(context, decision.pool, excluded, replica);
    unscaled_.clear();
    for (const PrefixMatches::Holder& holder : matches_.holders) {
      matched_blocks_[holder.replica] = 0;
    }
    matches_.clear();
    if (options_.prefixes != nullptr) {
      options_.prefixes->sent(features, replica);
    } else {
      index_.insert_matched(features.blocks, features.session_key, replica);
      if (booked.knowledge == Knowledge::kEvents) {
        engine_caches_.sent(exact_blocks(features), replica, now);
      }
    }
  }
  return decision;
}

void Router::first_token(Charge& charge, TimePoint now) {
  if (!charge.held() || !ledger_.first_token(charge)) return;
  const Booked& booked = booked_[charge.entry()];
  if (!booked.stream) return;  // what a plain answer shows first is not its first token
  Feedback feedback;
  feedback.event = Feedback::Event::kFirstToken;
  feedback.replica = charge.replica();
  feedback.cost = ledger_.cost(charge);
  feedback.work_ahead = ledger_.work_ahead(charge);
  feedback.ttft = now - ledger_.booked_at(charge);
  feedback.now = now;
  learn_rate(feedback.replica, feedback.work_ahead, feedback.ttft);
  pipelines_[booked.pool]->feedback(feedback);
}

void Router::finished(Charge charge, const Outcome& outcome, TimePoint now) {
  if (!charge.held()) return;
  assert(outcome.event != Feedback::Event::kFirstToken);
  const Booked booked = booked_[charge.entry()];
  Feedback feedback;
  feedback.event = outcome.event;
  feedback.replica = charge.replica();
  feedback.cost = ledger_.cost(charge);
  feedback.work_ahead = ledger_.work_ahead(charge);
  feedback.now = now;
  compare(feedback.replica, booked, feedback.cost.prompt_tokens, outcome);
  ledger_.release(std::move(charge));
  pipelines_[booked.pool]->feedback(feedback);
}

// What was predicted of a request, with what came of it. Shares of the prompt are compared, so that
// a length that was estimated wrong is no error here.
void Router::compare(ReplicaIndex replica, const Booked& booked, std::uint32_t prompt_tokens,
                     const Outcome& outcome) {
  const std::uint32_t prompt = outcome.prompt_tokens.value_or(prompt_tokens);
  const auto in_engine_tokens = [&](std::uint32_t tokens) {
    return prompt_tokens == 0
               ? 0
               : static_cast<std::uint32_t>(std::uint64_t{tokens} * prompt / prompt_tokens);
  };
  const std::uint32_t predicted = in_engine_tokens(booked.predicted_cached_tokens);
  if (outcome.cached_tokens) {
    Counters::Cached& cached = counters_.cached[static_cast<std::size_t>(booked.knowledge)];
    const std::uint32_t actual = *outcome.cached_tokens;
    ++cached.answers;
    cached.prompt_tokens += prompt;
    cached.predicted_tokens += predicted;
    cached.actual_tokens += actual;
    cached.missed_by_tokens += predicted > actual ? predicted - actual : actual - predicted;
  }
  if (!booked.looked_up) return;
  // What broke off without usage says nothing, and may not even have been looked up there.
  if (!outcome.cached_tokens && outcome.event != Feedback::Event::kFinished) return;
  if (outcome.event == Feedback::Event::kFinished) {
    count_computed(replica, booked, prompt,
                   outcome.cached_tokens.value_or(in_engine_tokens(booked.matched_tokens)));
  }
  const std::uint32_t engine_block = signals_[replica].block_tokens;
  prefix_trust_.answered(replica, {.from = booked.knowledge,
                                   .prompt_tokens = prompt,
                                   .matched_tokens = in_engine_tokens(booked.matched_tokens),
                                   .predicted_tokens = predicted,
                                   .cached_tokens = outcome.cached_tokens,
                                   .block_tokens = std::max(booked.block_tokens, engine_block),
                                   .held_blocks = index_.blocks(replica)});
  assume_capacity(replica);
}

// An engine stores each whole block that it computes, and tells of it. One block is let pass, for
// what rounding and tokens of its own do to a length.
void Router::count_computed(ReplicaIndex replica, const Booked& booked, std::uint32_t prompt,
                            std::uint32_t cached) {
  if (booked.knowledge != Knowledge::kEvents) return;
  if (booked.events_heard != events_heard_[replica]) return;
  const std::uint32_t known = signals_[replica].block_tokens;
  const std::uint32_t block = std::max(known == 0 ? kLongestBlock : known, booked.block_tokens);
  if (prompt >= std::uint64_t{cached} + 2 * std::uint64_t{block}) ++computed_prompts_[replica];
}

void Router::assume_capacity(ReplicaIndex replica) {
  const std::uint64_t blocks = prefix_trust_.capacity(replica);
  if (blocks == capacities_[replica]) return;
  capacities_[replica] = blocks;
  // What several routers share, they would pull to and fro.
  if (options_.prefixes == nullptr) index_.set_capacity(replica, blocks);
}

void Router::learn_response(std::uint64_t response_id, ReplicaIndex replica, TimePoint now) {
  pins_.learn(response_id, replica, now);
}

ReportWindow Router::report_opened(ReplicaIndex replica) {
  grow(std::size_t{replica} + 1);
  return ledger_.open_window(replica);
}

void Router::report_applied(ReplicaIndex replica, const Signals& signals) {
  grow(std::size_t{replica} + 1);
  Signals& current = signals_[replica];
  if (current.observed_at != TimePoint{} && signals.window < current.window) return;
  ledger_.advance(signals.observed_at);
  ledger_.close_window(replica, signals.window);
  if (signals.kv_capacity_tokens != current.kv_capacity_tokens) {
    const std::uint64_t blocks = signals.kv_capacity_tokens / options_.block_tokens;
    if (options_.prefixes != nullptr) options_.prefixes->set_capacity(replica, blocks);
    prefix_trust_.set_capacity(replica, blocks);
  }
  if (signals.prefix_caching) prefix_trust_.set_caching(replica, *signals.prefix_caching);
  prefix_trust_.counted(replica, signals.prefix_queries, signals.prefix_hits,
                        index_.blocks(replica));
  assume_capacity(replica);
  current = signals;
  if (current.kv_usage > 1) current.kv_usage = 1;
  current.kv_usage = in_range(current.kv_usage, 0, 1);
  current.running = in_range(current.running, 0, kMostRequests);
  current.waiting = in_range(current.waiting, 0, kMostRequests);
  current.queued_tokens = in_range(current.queued_tokens, 0, kMostTokens);
  current.prefix_hit_rate = in_range(current.prefix_hit_rate, 0, 1);
}

void Router::own_loads(TimePoint now, std::vector<PeerLoad>& out) {
  ledger_.advance(now);
  ledger_.own_loads(out);
}

void Router::forget(ReplicaIndex replica) {
  ledger_.forget_peers_of(replica);
  if (replica < signals_.size()) {
    signals_[replica] = Signals{};
    learnt_[replica] = Learnt{};
    capacities_[replica] = 0;
  }
  prefix_trust_.forget(replica);
  if (options_.prefixes != nullptr) options_.prefixes->forget(replica);
  index_.forget(replica);
  engine_caches_.forget(replica);
  pins_.forget(replica);
  for (const auto& pipeline : pipelines_) pipeline->forget(replica);
}

void Router::events_heard(ReplicaIndex replica) {
  if (replica < events_heard_.size()) ++events_heard_[replica];
}

void Router::forget_cache(ReplicaIndex replica) {
  prefix_trust_.forget(replica);
  if (options_.prefixes != nullptr) options_.prefixes->forget(replica);
  index_.forget(replica);
  if (replica >= signals_.size()) return;
  // What it reports stays true.
  const Signals& reported = signals_[replica];
  const std::uint64_t blocks = reported.kv_capacity_tokens / options_.block_tokens;
  if (options_.prefixes != nullptr) options_.prefixes->set_capacity(replica, blocks);
  prefix_trust_.set_capacity(replica, blocks);
  if (reported.prefix_caching) prefix_trust_.set_caching(replica, *reported.prefix_caching);
  capacities_[replica] = 0;
  assume_capacity(replica);
}

double Router::prefill_rate(ReplicaIndex replica) const {
  if (replica >= learnt_.size() || learnt_[replica].seconds <= 0) {
    return options_.initial_prefill_rate;
  }
  return std::clamp(learnt_[replica].tokens / learnt_[replica].seconds, kSlowestRate, kFastestRate);
}

const Signals& Router::signals(ReplicaIndex replica) const {
  static constexpr Signals kNone;
  return replica < signals_.size() ? signals_[replica] : kNone;
}

void Router::grow(std::size_t replicas) {
  if (replicas <= signals_.size()) return;
  ledger_.reserve(replicas);
  signals_.resize(replicas);
  learnt_.resize(replicas);
  matched_blocks_.resize(replicas);
  capacities_.resize(replicas);
  computed_prompts_.resize(replicas);
  events_heard_.resize(replicas);
  prefix_trust_.grow(replicas);
}

Router::Choice Router::choose_pool(const Features& features, const FleetView& fleet,
                                   std::span<const ReplicaIndex> excluded) {
  const std::size_t pools = std::min(fleet.pools.size(), pipelines_.size());
  const auto find = [&](PoolPurpose purpose, bool& exists) -> Choice {
    for (std::size_t i = 0; i < pools; ++i) {
      if (fleet.pools[i].purpose != purpose) continue;
      exists = true;
      const std::span<const ReplicaIndex> found =
          candidates(fleet.pools[i], features.model, excluded);
      if (!found.empty()) return {static_cast<PoolIndex>(i), true, false, found};
    }
    return {};
  };
  const PoolPurpose purpose = purpose_of(features, options_.segregation);
  bool exists = false;
  Choice choice = find(purpose, exists);
  if (!choice.found && purpose != PoolPurpose::kGeneral) {
    const bool own_pool_exists = exists;
    choice = find(PoolPurpose::kGeneral, exists);
    choice.fallback = choice.found && own_pool_exists;
  }
  return choice;
}

std::span<const ReplicaIndex> Router::candidates(const PoolView& pool, std::string_view model,
                                                 std::span<const ReplicaIndex> excluded) {
  const std::span<const ReplicaIndex> all = pool.candidates(model);
  if (excluded.empty()) return all;
  candidates_.clear();
  for (const ReplicaIndex replica : all) {
    if (!contains(excluded, replica)) candidates_.push_back(replica);
  }
  return candidates_;
}

void Router::look_up_prefix(const Features& features, TimePoint now) {
  if (options_.prefixes != nullptr) {
    options_.prefixes->match(features, matches_);
  } else {
    index_.match(features.blocks, features.session_key, matches_);
    const std::span<const BlockHash> exact = exact_blocks(features);
    if (!exact.empty() && engine_caches_.any_trusted()) apply_engine_caches(exact, now);
  }
  if (features.computes_all) return matches_.clear();
  round_to_engine_blocks(features, signals_, matches_);
  if (prefix_trust_.any_doubted()) apply_trust(features);
  for (const PrefixMatches::Holder& holder : matches_.holders) {
    assert(holder.replica < matched_blocks_.size());
    matched_blocks_[holder.replica] = holder.blocks;
  }
}

// Puts what the engines say in the place of what was believed of them. Behind the exact blocks,
// where a picture begins, the belief stands for replicas that hold all of those.
void Router::apply_engine_caches(std::span<const BlockHash> exact, TimePoint now) {
  engine_caches_.match(exact, now, engine_matches_);
  std::erase_if(engine_matches_, [&](const EngineCaches::Match& match) {
    return match.replica >= matched_blocks_.size();
  });
  for (const PrefixMatches::Holder& holder : matches_.holders) {
    matched_blocks_[holder.replica] = holder.blocks;
  }
  for (EngineCaches::Match& match : engine_matches_) {
    const std::uint32_t believed = matched_blocks_[match.replica];
    if (match.length == exact.size() && believed > match.length) {
      match.blocks += believed - match.length;
    }
  }
  std::erase_if(matches_.holders, [&](const PrefixMatches::Holder& holder) {
    matched_blocks_[holder.replica] = 0;
    return engine_caches_.trusted(holder.replica);
  });
  for (const EngineCaches::Match& match : engine_matches_) {
    if (match.blocks > 0) matches_.holders.push_back({match.replica, match.blocks});
  }
}

Knowledge Router::knowledge_of(const Features& features, ReplicaIndex replica) const {
  const bool from_events =
      options_.prefixes == nullptr && features.exact_blocks > 0 && engine_caches_.trusted(replica);
  return from_events ? Knowledge::kEvents : Knowledge::kSent;
}

// Leaves of every match the share that is believed. A holder that is not believed at all is none.
void Router::apply_trust(const Features& features) {
  unscaled_.assign(matches_.holders.begin(), matches_.holders.end());
  for (PrefixMatches::Holder& holder : matches_.holders) {
    const double share =
        prefix_trust_.share(holder.replica, knowledge_of(features, holder.replica));
    if (share < 1) holder.blocks = static_cast<std::uint32_t>(holder.blocks * share);
  }
  std::erase_if(matches_.holders,
                [](const PrefixMatches::Holder& holder) { return holder.blocks == 0; });
}

std::uint32_t Router::unscaled_blocks(ReplicaIndex replica) const {
  if (unscaled_.empty()) return matched_blocks_[replica];
  for (const PrefixMatches::Holder& holder : unscaled_) {
    if (holder.replica == replica) return holder.blocks;
  }
  return 0;
}

void Router::count_replication(const Context& context, PoolIndex pool,
                               std::span<const ReplicaIndex> excluded, ReplicaIndex chosen) {
  const auto could_serve = [&](ReplicaIndex replica) {
    const Replica& one = context.replicas[replica];
    return one.usable && one.pool == pool && !contains(excluded, replica);
  };
  std::uint32_t longest = 0;
  for (const PrefixMatches::Holder& holder : matches_.holders) {
    if (could_serve(holder.replica)) longest = std::max(longest, holder.blocks);
  }
  if (cached_tokens(context.features, longest) < kLongPrefixTokens) return;
  if (2 * std::uint64_t{matched_blocks_[chosen]} >= longest) return;
  auto why = Replication::kSaturated;
  for (const PrefixMatches::Holder& holder : matches_.holders) {
    const bool counts = 2 * std::uint64_t{holder.blocks} >= longest && could_serve(holder.replica);
    if (counts && !saturated(context, holder.replica)) why = Replication::kLessWork;
  }
  ++counters_.replications[static_cast<std::size_t>(why)];
}

void Router::learn_rate(ReplicaIndex replica, std::int64_t tokens, Duration took) {
  if (tokens <= 0 || took <= Duration::zero()) return;
  Learnt& learnt = learnt_[replica];
  learnt.tokens = kRateMemory * learnt.tokens + static_cast<double>(tokens);
  learnt.seconds = kRateMemory * learnt.seconds + to_seconds(took);
}

}  // namespace pointsman
