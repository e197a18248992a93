#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "core/fleet_view.h"
#include "core/replica.h"
#include "runtime/health.h"

namespace pointsman {

class TlsClient;

// A replica as configured. Addresses are parsed by the host (http/url.h); the fleet only keeps
// them.
struct ReplicaSpec {
  std::string url;   // as configured: the replica's name for people, logs and metrics
  std::string host;  // name or IP literal, without brackets
  std::uint16_t port = 80;
  std::string authority;    // for the Host header
  std::string path_prefix;  // "" or "/base"
  // How it is spoken to; null: without TLS. The fleet only keeps it (net/tls_context.h).
  std::shared_ptr<const TlsClient> tls;
  std::string tls_name;  // that its certificate must have
  double weight = 1.0;
  std::uint64_t kv_capacity_tokens = 0;  // 0: as it reports
  std::string pool = "general";
  std::string api_key;            // for probes and scrapes; never logged
  bool api_key_upstream = false;  // also sent with proxied requests in place of the client's
  std::string health_path = "/health";
  std::uint16_t health_port = 0;  // 0: the replica's own port
  std::string metrics_path = "/metrics";
  std::uint16_t metrics_port = 0;    // 0: the replica's own port
  std::uint16_t kv_events_port = 0;  // of its cache events, on its host; 0: as all have it
  std::uint16_t kv_replay_port = 0;  // likewise, of those that were missed
  std::string kv_topic;  // of its cache events; empty: known by its address in the topic
};

// Everything known of one replica, for the admin port, metrics and people.
struct ReplicaStatus {
  ReplicaIndex index = kNoReplica;
  ReplicaSpec spec;
  HealthState health;
  bool draining = false;
  bool usable = false;
  std::string why;     // why it is not usable, for a person; empty where it is
  std::string engine;  // detected from its metrics; empty: not yet
  bool has_model_list = false;
  std::vector<std::string> models;  // sorted
  std::string base_model;           // of these; empty: not known
};

// What a model name means to the fleet.
enum class ModelState : std::uint8_t {
  kServed,    // a usable replica names it, or may serve it (no list, or a list that means nothing)
  kUnusable,  // a replica names it, none of those is usable
  kUnknown,   // every replica has given a list and none names it
};

// The replicas of this process, their health, and the view that decisions are made on. Thread-safe:
// written by the admin port and the feeds, told of request outcomes by every reactor.
class Fleet {
 public:
  struct PoolSpec {
    std::string name;
    PoolPurpose purpose = PoolPurpose::kGeneral;
  };

  // `pools` in the order of their PoolIndex; names are distinct.
  Fleet(std::vector<PoolSpec> pools, const HealthOptions& health, const Clock& clock);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // --- membership -------------------------------------------------------------------------------
  // Error: a replica with the same host, port and path prefix is there; unknown pool; too many.
  Result<ReplicaIndex> add(ReplicaSpec spec);
  Result<void> remove(std::string_view url);  // running exchanges end in peace
  Result<void> set_draining(std::string_view url, bool draining);

  // --- what the feeds say -----------------------------------------------------------------------
  void probe_result(ReplicaIndex replica, const ProbeResult& result);
  void set_awake(ReplicaIndex replica, bool awake);
  void set_engine(ReplicaIndex replica, std::string_view engine);
  // `models`: nullopt where the replica gives no list, or one that means nothing (llama.cpp ignores
  // the model name). `base_model`: the one that others on the list are adapters of; empty: unknown.
  void set_models(ReplicaIndex replica, std::optional<std::vector<std::string>> models,
                  std::string base_model = {});

  // --- what requests say ------------------------------------------------------------------------
  void request_succeeded(
      ReplicaIndex replica);  // cheap while the replica has no failures on record
  // The first byte came on a new connection.
  void connection_answered(ReplicaIndex replica);
  void request_failed(ReplicaIndex replica, RequestFailure failure);
  // The replica answered "cannot schedule new futures": it is shutting down; not usable until a
  // probe has failed and later one succeeded, or 30 s have passed.
  void request_found_draining(ReplicaIndex replica);

  // --- what decisions read ----------------------------------------------------------------------
  // Moves whenever the view was replaced. One relaxed load; compare with your copy's generation.
  [[nodiscard]] std::uint64_t generation() const {
    return generation_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::shared_ptr<const FleetView> view() const;

  // Ends ejections whose time is over, and logs each replica that has gone out of use or has come
  // into it since the last call: one line, whatever happened in between. Called about every 100 ms
  // by the housekeeping thread, so that no thread that serves requests ever writes to the log.
  void tick();

  [[nodiscard]] ModelState model_state(std::string_view model) const;
  // Distinct models that the usable replicas name; 1 with an empty set of lists counts as one
  // unnamed.
  [[nodiscard]] std::size_t models_served() const;
  [[nodiscard]] bool any_usable() const;

  // The configured replicas, for those who follow them.
  [[nodiscard]] std::vector<std::pair<ReplicaIndex, std::shared_ptr<const ReplicaSpec>>> replicas()
      const;
  [[nodiscard]] std::vector<ReplicaStatus> status() const;
  [[nodiscard]] std::optional<ReplicaStatus> status(ReplicaIndex replica) const;
  // The replica's address; stable while the replica is configured. Cheap enough for the request
  // path.
  [[nodiscard]] std::shared_ptr<const ReplicaSpec> spec(ReplicaIndex replica) const;

  // --- who wants to know ------------------------------------------------------------------------
  // Called (from whichever thread noticed, without the fleet's lock) when a replica is gone: its
  // exchanges must be cut. And when it came back or was removed: what is known of it must be
  // forgotten.
  struct Listener {
    std::function<void(ReplicaIndex)> gone;
    std::function<void(ReplicaIndex)> forget;
  };
  void add_listener(Listener listener);

 private:
  struct Member;
  struct State;

  void apply(ReplicaIndex replica, const std::function<HealthChange(HealthState&)>& step);

  const HealthOptions options_;
  const Clock& clock_;
  std::atomic<std::uint64_t> generation_{0};
  // By ReplicaIndex: a success would clear something. Read on the request path without the lock.
  std::unique_ptr<std::atomic<bool>[]> has_faults_;
  mutable std::mutex mutex_;
  std::unique_ptr<State> state_;
};

}  // namespace pointsman
