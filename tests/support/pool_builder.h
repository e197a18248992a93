#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/time.h"
#include "core/context.h"
#include "core/fleet_view.h"
#include "core/ledger.h"
#include "core/pipeline.h"

namespace pointsman::testing_support {

// What a test says of a replica; what it leaves out is as with an idle replica that has not
// reported.
struct ReplicaState {
  double weight = 1.0;
  std::optional<double> kv{};       // reported KV use
  std::optional<double> waiting{};  // reported queue
  std::optional<Duration> age{};    // of the report; a second is fresh, three are the limit
  std::uint64_t capacity = 0;       // tokens of KV cache, reported
  std::uint64_t configured = 0;     // tokens of KV cache, configured
  int decoding = 0;                 // own requests past their first token
  int queued = 0;                   // own requests before it, sent before the report
  int sent_since = 0;               // own requests before it, sent after the report
  std::uint32_t tokens = 0;         // prompt tokens of each of those requests, all uncached
  std::uint32_t matched = 0;        // blocks of the request's prompt held there
};

// A pool in a given state, and requests to it. Time stands still unless told otherwise.
class PoolBuilder {
 public:
  PoolBuilder() = default;
  PoolBuilder(const PoolBuilder&) = delete;
  PoolBuilder& operator=(const PoolBuilder&) = delete;
  ~PoolBuilder() { finish_all(); }

  static constexpr Duration kMaxAge = std::chrono::seconds(3);

  // Replicas r0, r1, …, all in the same state.
  void add_uniform(std::size_t count, const ReplicaState& state = {}) {
    for (std::size_t i = 0; i < count; ++i) add("r" + std::to_string(names_.size()), state);
  }

  ReplicaIndex add(std::string name, const ReplicaState& state = {}) {
    const auto index = static_cast<ReplicaIndex>(replicas_.size());
    replicas_.push_back({identity(name), state.weight, 0, true, state.configured});
    names_.push_back(std::move(name));
    usable_.push_back(index);
    signals_.emplace_back();
    matched_.push_back(state.matched);
    if (state.matched > 0) holders_.push_back({index, state.matched});
    for (int i = 0; i < state.decoding; ++i) ledger_.first_token(book(index, state.tokens));
    for (int i = 0; i < state.queued; ++i) book(index, state.tokens);
    if (state.kv || state.waiting) {
      report(index, state.kv, state.waiting, state.age.value_or(Duration::zero()), state.capacity);
    } else {
      signals_[index].kv_capacity_tokens = state.capacity;
    }
    for (int i = 0; i < state.sent_since; ++i) book(index, state.tokens);
    return index;
  }

  // A report that knows of all that was sent so far.
  void report(ReplicaIndex replica, std::optional<double> kv, std::optional<double> waiting,
              Duration age = Duration::zero(), std::uint64_t capacity = 0) {
    Signals& signals = signals_[replica];
    signals = Signals{};
    signals.window = ledger_.open_window(replica);
    signals.observed_at = now - age;
    signals.max_age = kMaxAge;
    if (kv) signals.kv_usage = static_cast<float>(*kv);
    if (waiting) signals.waiting = static_cast<float>(*waiting);
    signals.kv_capacity_tokens = capacity;
    ledger_.close_window(replica, signals.window);
  }

  void remove(std::string_view name) {
    std::erase(usable_, index(name));
    replicas_[index(name)].usable = false;
  }
  void restore(std::string_view name) {
    usable_.insert(std::lower_bound(usable_.begin(), usable_.end(), index(name)), index(name));
    replicas_[index(name)].usable = true;
  }
  // Lists the candidates in another order.
  void order_candidates(std::vector<ReplicaIndex> order) { usable_ = std::move(order); }

  [[nodiscard]] ReplicaIndex index(std::string_view name) const {
    for (ReplicaIndex i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return i;
    }
    throw std::out_of_range(std::string(name));
  }
  [[nodiscard]] const std::string& name(ReplicaIndex replica) const { return names_[replica]; }
  [[nodiscard]] std::size_t size() const { return replicas_.size(); }
  [[nodiscard]] std::span<const ReplicaIndex> candidates() const { return usable_; }

  [[nodiscard]] Context context() {
    return {.features = features,
            .replicas = replicas_,
            .signals = signals_,
            .ledger = ledger_,
            .matched_blocks = matched_,
            .holders = holders_,
            .shared_blocks = shared_blocks,
            .limits = limits,
            .now = now,
            .rng = rng,
            .engine_caches = engine_caches};
  }

  // The policy's choice; nothing is booked. "" where there is none.
  std::string pick(Pipeline& policy) {
    const std::vector<ReplicaIndex> list = order(policy);
    return list.empty() ? "" : names_[list[0]];
  }
  // The whole list; also tells the policy that the first was taken, as a router does.
  std::vector<ReplicaIndex> order(Pipeline& policy) {
    Context now_context = context();
    std::vector<ReplicaIndex> list(Decision::kMaxReplicas);
    list.resize(policy.choose(now_context, usable_, list));
    reason = now_context.reason;
    if (!list.empty()) policy.picked(now_context, list[0]);
    return list;
  }
  // How often each is chosen in `requests` that leave no trace (each ends before the next comes).
  std::map<std::string, int> shares(Pipeline& policy, int requests) {
    std::map<std::string, int> counts;
    for (const ReplicaIndex replica : usable_) counts[names_[replica]] = 0;
    for (int i = 0; i < requests; ++i) ++counts[pick(policy)];
    return counts;
  }
  // How often each is chosen in `requests` of which none ends.
  std::map<std::string, int> burst(Pipeline& policy, int requests) {
    std::map<std::string, int> counts;
    for (const ReplicaIndex replica : usable_) counts[names_[replica]] = 0;
    for (int i = 0; i < requests; ++i) {
      const std::string chosen = pick(policy);
      ++counts[chosen];
      book(index(chosen), features.prompt_tokens);
    }
    return counts;
  }

  // A stream's booking, its prompt uncached; returned with all others at the end.
  Charge& book(ReplicaIndex replica, std::uint32_t tokens) {
    charges_.push_back(ledger_.book(replica, {tokens, tokens}, now, TimePoint{}));
    return charges_.back();
  }
  // Another router tells that it has so much outstanding there, and nothing elsewhere.
  void hear_peer(PeerIndex peer, const PeerLoad& load) {
    ledger_.apply_peer(peer, std::span(&load, 1));
  }
  void finish_all() {
    for (Charge& charge : charges_) ledger_.release(std::move(charge));
    charges_.clear();
  }

  // The hash that stands for a name, as a URL's does.
  static std::uint64_t identity(std::string_view name) {
    std::uint64_t seed = 0xcbf29ce484222325ULL;
    for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return Rng(seed)();
  }

  Features features;
  SaturationLimits limits;
  std::uint32_t shared_blocks = 0;
  const EngineCaches* engine_caches = nullptr;
  TimePoint now{std::chrono::hours(1)};
  Rng rng{1};
  Reason reason = Reason::kPolicy;  // of the last choice

 private:
  std::vector<std::string> names_;
  std::vector<Replica> replicas_;
  std::vector<ReplicaIndex> usable_;
  std::vector<Signals> signals_;
  std::vector<std::uint32_t> matched_;
  std::vector<PrefixMatches::Holder> holders_;
  Ledger ledger_;
  std::vector<Charge> charges_;
};

}  // namespace pointsman::testing_support
