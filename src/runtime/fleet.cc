#include "runtime/fleet.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/log.h"

namespace pointsman {
namespace {

// The same in every process, so that routers which know the same URLs agree on consistent hashes.
// FNV-1a, and the finaliser of MurmurHash3 (Appleby), since the last letters of URLs differ most.
std::uint64_t identity_of(std::string_view url) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : url) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdULL;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53ULL;
  hash ^= hash >> 33;
  return hash;
}

std::string_view without_slash(std::string_view url) {
  while (url.ends_with('/')) url.remove_suffix(1);
  return url;
}

// Whether both ask the same process for the same paths, however their URLs are written.
bool same_place(const ReplicaSpec& a, const ReplicaSpec& b) {
  return iequals(a.host, b.host) && a.port == b.port && a.path_prefix == b.path_prefix;
}

}  // namespace

struct Fleet::Member {
  std::shared_ptr<const ReplicaSpec> spec;
  std::uint64_t identity = 0;
  PoolIndex pool = 0;
  bool removed = false;
  TimePoint removed_at{};
  bool draining = false;
  bool published_usable = false;
  std::optional<bool> told_usable;  // what the log says last; nothing yet
  bool was_in = false;              // the log has said that it is in
  bool told_gone = false;           // and since then that it is gone
  HealthState health;
  std::string engine;
  std::optional<std::vector<std::string>> models;  // sorted, without repetitions
  std::string base_model;

  [[nodiscard]] bool usable(TimePoint now) const {
    return !removed && !draining && health.usable(now);
  }
  [[nodiscard]] bool names(const std::string& model) const {
    return models && std::ranges::binary_search(*models, model);
  }
};

struct Fleet::State {
  std::vector<PoolSpec> pools;
  std::vector<Member> members;  // by ReplicaIndex
  std::shared_ptr<const FleetView> view;
  std::vector<Listener> listeners;

  [[nodiscard]] Member* find(std::string_view url) {
    for (Member& member : members) {
      if (!member.removed && without_slash(member.spec->url) == without_slash(url)) return &member;
    }
    return nullptr;
  }

  [[nodiscard]] Member* find_place(const ReplicaSpec& spec) {
    for (Member& member : members) {
      if (!member.removed && same_place(*member.spec, spec)) return &member;
    }
    return nullptr;
  }

  [[nodiscard]] Member* at(ReplicaIndex replica) {
    return replica < members.size() && !members[replica].removed ? &members[replica] : nullptr;
  }

  // Whether taking one more replica away by ejection leaves enough of its pool.
  [[nodiscard]] bool may_eject(const Member& chosen, double floor, TimePoint now) const {
    std::size_t configured = 0;
    std::size_t left = 0;
    for (const Member& member : members) {
      if (member.removed || member.pool != chosen.pool) continue;
      ++configured;
      if (&member != &chosen && member.usable(now)) ++left;
    }
    return static_cast<double>(left) >= floor * static_cast<double>(configured);
  }

  // True where some replica's usability is not what the view says.
  [[nodiscard]] bool stale(TimePoint now) const {
    return std::ranges::any_of(members, [now](const Member& member) {
      return member.usable(now) != member.published_usable;
    });
  }

  // Whether all replicas serve the same models, as far as anybody can tell.
  [[nodiscard]] bool uniform() const {
    const Member* first = nullptr;
    for (const Member& member : members) {
      if (member.removed) continue;
      if (first == nullptr) {
        first = &member;
      } else if (first->models != member.models) {
        return false;
      }
    }
    return true;
  }

  // Why the member is not usable, as people are told; empty where it is.
  static std::string why(const Member& member, TimePoint now) {
    if (member.usable(now)) return "";
    std::string why = why_unusable(member.health, now);
    if (member.draining) why = why.empty() ? "draining" : "draining; " + why;
    return why;
  }

  struct Line {
    LogLevel level;
    std::string text;
  };
  // What the log does not say yet.
  std::vector<Line> take_lines(TimePoint now) {
    std::vector<Line> lines;
    for (Member& member : members) {
      const bool usable = member.published_usable;
      const HealthState& health = member.health;
      // One that was out for less, as an ejection, and is gone now: that is news. Of one that was
      // told to drain it is what is expected.
      const bool went = !usable && !member.draining && !member.told_gone &&
                        health.phase == HealthState::Phase::kGone && member.was_in;
      if (member.removed || (member.told_usable == usable && !went)) continue;
      // Before its first probe has ended a replica is neither in nor out.
      if (!usable && !member.draining && health.phase == HealthState::Phase::kUnknown &&
          health.detail.empty()) {
        continue;
      }
      std::string text = "replica " + member.spec->url;
      if (!usable) {
        text += " is out: " + why(member, now);
      } else {
        text += member.told_usable ? " is in again" : " is in";
        member.was_in = true;
      }
      lines.push_back({usable ? LogLevel::kInfo : LogLevel::kWarning, std::move(text)});
      member.told_usable = usable;
      member.told_gone = !usable && health.phase == HealthState::Phase::kGone;
    }
    return lines;
  }

  [[nodiscard]] ReplicaStatus status_of(ReplicaIndex replica, TimePoint now) const {
    const Member& member = members[replica];
    ReplicaStatus status;
    status.index = replica;
    status.spec = *member.spec;
    status.health = member.health;
    status.draining = member.draining;
    status.usable = member.usable(now);
    status.why = why(member, now);
    status.engine = member.engine;
    status.has_model_list = member.models.has_value();
    if (member.models) status.models = *member.models;
    status.base_model = member.base_model;
    return status;
  }

  std::shared_ptr<const FleetView> build(std::uint64_t generation, TimePoint now) {
    auto next = std::make_shared<FleetView>();
    next->generation = generation;
    next->replicas.reserve(members.size());
    for (const PoolSpec& pool : pools) next->pools.push_back({pool.name, pool.purpose, {}, {}, {}});
    std::set<std::string> named;
    for (ReplicaIndex i = 0; i < members.size(); ++i) {
      Member& member = members[i];
      member.published_usable = member.usable(now);
      next->replicas.push_back({member.identity, member.spec->weight, member.pool,
                                member.published_usable, member.spec->kv_capacity_tokens});
      if (!member.removed && member.models)
        named.insert(member.models->begin(), member.models->end());
      if (!member.published_usable) continue;
      PoolView& pool = next->pools[member.pool];
      pool.usable.push_back(i);
      if (!member.models) pool.any_model.push_back(i);
    }
    if (!uniform()) {
      // Every pool lists every model, also those that none of its replicas serves.
      for (PoolView& pool : next->pools) {
        for (const std::string& model : named) {
          std::vector<ReplicaIndex> serving;
          for (const ReplicaIndex i : pool.usable) {
            if (!members[i].models || members[i].names(model)) serving.push_back(i);
          }
          pool.by_model.emplace_back(model, std::move(serving));
        }
      }
    }
    return next;
  }
};

Fleet::Fleet(std::vector<PoolSpec> pools, const HealthOptions& health, const Clock& clock)
    : options_(health),
      clock_(clock),
      has_faults_(std::make_unique<std::atomic<bool>[]>(kMaxReplicas)),
      state_(std::make_unique<State>()) {
  state_->pools = std::move(pools);
  state_->view = state_->build(++generation_, clock_.now());
}

Fleet::~Fleet() = default;

// --- membership ---------------------------------------------------------------------------------

Result<ReplicaIndex> Fleet::add(ReplicaSpec spec) {
  ReplicaIndex index = kNoReplica;
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    State& state = *state_;
    if (const Member* same = state.find_place(spec)) {
      const bool spelt_so = same->spec->url == spec.url;
      return Error{ErrorKind::kClient, "replica " + spec.url + " is there already" +
                                           (spelt_so ? "" : ", as " + same->spec->url)};
    }
    const auto pool = std::ranges::find(state.pools, spec.pool, &PoolSpec::name);
    if (pool == state.pools.end()) {
      return Error{ErrorKind::kClient, "replica " + spec.url + ": no pool '" + spec.pool + "'"};
    }
    // Its former place, if it was here before: requests from then may still be running on it. Else
    // a new one; else, of the removed ones, the one that left first.
    const Member* reuse = nullptr;
    for (const Member& member : state.members) {
      if (!member.removed) continue;
      if (same_place(*member.spec, spec)) {
        reuse = &member;
        break;
      }
      if (state.members.size() < kMaxReplicas) continue;
      if (reuse == nullptr || member.removed_at < reuse->removed_at) reuse = &member;
    }
    if (reuse != nullptr) {
      index = static_cast<ReplicaIndex>(reuse - state.members.data());
    } else if (state.members.size() < kMaxReplicas) {
      index = static_cast<ReplicaIndex>(state.members.size());
      state.members.emplace_back();
    } else {
      return Error{ErrorKind::kClient,
                   "no more than " + std::to_string(kMaxReplicas) + " replicas"};
    }
    Member& member = state.members[index];
    member = Member();
    member.identity = identity_of(spec.url);
    member.pool = static_cast<PoolIndex>(pool - state.pools.begin());
    member.spec = std::make_shared<const ReplicaSpec>(std::move(spec));
    has_faults_[index].store(false, std::memory_order_relaxed);
    state.view = state.build(++generation_, clock_.now());
    if (reuse != nullptr) listeners = state.listeners;
  }
  for (const Listener& listener : listeners) {
    if (listener.forget) listener.forget(index);
  }
  return index;
}

Result<void> Fleet::remove(std::string_view url) {
  ReplicaIndex index = kNoReplica;
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    Member* member = state_->find(url);
    if (member == nullptr) {
      return Error{ErrorKind::kClient, "no replica " + std::string(url)};
    }
    member->removed = true;
    member->removed_at = clock_.now();
    index = static_cast<ReplicaIndex>(member - state_->members.data());
    state_->view = state_->build(++generation_, clock_.now());
    listeners = state_->listeners;
  }
  for (const Listener& listener : listeners) {
    if (listener.forget) listener.forget(index);
  }
  return {};
}

Result<void> Fleet::set_draining(std::string_view url, bool draining) {
  const std::lock_guard lock(mutex_);
  Member* member = state_->find(url);
  if (member == nullptr) return Error{ErrorKind::kClient, "no replica " + std::string(url)};
  member->draining = draining;
  if (state_->stale(clock_.now())) state_->view = state_->build(++generation_, clock_.now());
  return {};
}

// --- health -------------------------------------------------------------------------------------

void Fleet::apply(ReplicaIndex replica, const std::function<HealthChange(HealthState&)>& step) {
  HealthChange change;
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    Member* member = state_->at(replica);
    if (member == nullptr) return;
    const TimePoint now = clock_.now();
    change = step(member->health);
    if (change.wants_ejection != EjectionCause::kNone &&
        state_->may_eject(*member, options_.usable_floor, now)) {
      eject(member->health, change.wants_ejection, options_, now);
    }
    has_faults_[replica].store(member->health.has_faults(), std::memory_order_relaxed);
    if (member->usable(now) != member->published_usable) {
      state_->view = state_->build(++generation_, now);
    }
    if (change.went_gone || change.came_back) listeners = state_->listeners;
  }
  for (const Listener& listener : listeners) {
    if (change.went_gone && listener.gone) listener.gone(replica);
    if (change.came_back && listener.forget) listener.forget(replica);
  }
}

void Fleet::probe_result(ReplicaIndex replica, const ProbeResult& result) {
  apply(replica,
        [&](HealthState& health) { return apply_probe(health, result, options_, clock_.now()); });
}

void Fleet::set_awake(ReplicaIndex replica, bool awake) {
  apply(replica, [awake](HealthState& health) {
    HealthChange change;
    // A sleeping engine gives up its cache.
    change.came_back = awake && !health.awake;
    health.awake = awake;
    return change;
  });
}

void Fleet::request_succeeded(ReplicaIndex replica) {
  if (replica >= kMaxReplicas || !has_faults_[replica].load(std::memory_order_relaxed)) return;
  apply(replica, [](HealthState& health) {
    apply_request_success(health);
    return HealthChange{};
  });
}

void Fleet::connection_answered(ReplicaIndex replica) {
  if (replica >= kMaxReplicas || !has_faults_[replica].load(std::memory_order_relaxed)) return;
  apply(replica, [](HealthState& health) {
    apply_connection_answered(health);
    return HealthChange{};
  });
}

void Fleet::request_failed(ReplicaIndex replica, RequestFailure failure) {
  apply(replica, [&](HealthState& health) {
    return apply_request_failure(health, failure, options_, clock_.now());
  });
}

void Fleet::request_found_draining(ReplicaIndex replica) {
  apply(replica, [&](HealthState& health) {
    apply_leaving(health, clock_.now());
    return HealthChange{};
  });
}

void Fleet::tick() {
  std::vector<State::Line> lines;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    if (state_->stale(now)) state_->view = state_->build(++generation_, now);
    lines = state_->take_lines(now);
  }
  for (const State::Line& line : lines) log(line.level, line.text);
}

// --- what replicas say of themselves -----------------------------------------------------------

void Fleet::set_engine(ReplicaIndex replica, std::string_view engine) {
  const std::lock_guard lock(mutex_);
  if (Member* member = state_->at(replica)) member->engine = engine;
}

void Fleet::set_models(ReplicaIndex replica, std::optional<std::vector<std::string>> models,
                       std::string base_model) {
  if (models) {
    std::ranges::sort(*models);
    models->erase(std::unique(models->begin(), models->end()), models->end());
  }
  const std::lock_guard lock(mutex_);
  Member* member = state_->at(replica);
  if (member == nullptr) return;
  member->base_model = std::move(base_model);
  if (member->models == models) return;
  member->models = std::move(models);
  state_->view = state_->build(++generation_, clock_.now());
}

// --- reading ------------------------------------------------------------------------------------

std::shared_ptr<const FleetView> Fleet::view() const {
  const std::lock_guard lock(mutex_);
  return state_->view;
}

ModelState Fleet::model_state(std::string_view model) const {
  const std::string name(model);
  const std::lock_guard lock(mutex_);
  bool any = false;
  bool all_have_lists = true;
  bool named = false;
  for (const Member& member : state_->members) {
    if (member.removed) continue;
    any = true;
    const bool may_serve = !member.models || member.names(name);
    if (may_serve && member.published_usable) return ModelState::kServed;
    if (!member.models) {
      all_have_lists = false;
    } else if (may_serve) {
      named = true;
    }
  }
  return any && all_have_lists && !named ? ModelState::kUnknown : ModelState::kUnusable;
}

std::size_t Fleet::models_served() const {
  const std::lock_guard lock(mutex_);
  std::set<std::string_view> named;
  for (const Member& member : state_->members) {
    if (!member.published_usable || !member.models) continue;
    named.insert(member.models->begin(), member.models->end());
  }
  return std::max<std::size_t>(named.size(), 1);
}

bool Fleet::any_usable() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(state_->members, &Member::published_usable);
}

std::vector<std::pair<ReplicaIndex, std::shared_ptr<const ReplicaSpec>>> Fleet::replicas() const {
  std::vector<std::pair<ReplicaIndex, std::shared_ptr<const ReplicaSpec>>> all;
  const std::lock_guard lock(mutex_);
  for (ReplicaIndex i = 0; i < state_->members.size(); ++i) {
    if (!state_->members[i].removed) all.emplace_back(i, state_->members[i].spec);
  }
  return all;
}

std::vector<ReplicaStatus> Fleet::status() const {
  std::vector<ReplicaStatus> all;
  const std::lock_guard lock(mutex_);
  for (ReplicaIndex i = 0; i < state_->members.size(); ++i) {
    if (!state_->members[i].removed) all.push_back(state_->status_of(i, clock_.now()));
  }
  return all;
}

std::optional<ReplicaStatus> Fleet::status(ReplicaIndex replica) const {
  const std::lock_guard lock(mutex_);
  if (state_->at(replica) == nullptr) return std::nullopt;
  return state_->status_of(replica, clock_.now());
}

std::shared_ptr<const ReplicaSpec> Fleet::spec(ReplicaIndex replica) const {
  const std::lock_guard lock(mutex_);
  // Of a removed replica too: a decision made just before may still ask.
  return replica < state_->members.size() ? state_->members[replica].spec : nullptr;
}

void Fleet::add_listener(Listener listener) {
  const std::lock_guard lock(mutex_);
  state_->listeners.push_back(std::move(listener));
}

}  // namespace pointsman
