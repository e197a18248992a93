#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "core/decision.h"
#include "telemetry/metrics.h"

namespace pointsman {

// Why a request was tried again on another replica.
enum class RetryReason : std::uint8_t {
  kRefused,         // connection refused or reset before any byte
  kConnectTimeout,  // no connection in time
  kLost,            // the connection was lost with the request sent, before the first body byte
  kBadAnswer,       // what the replica answered with is not valid HTTP
  kBadGateway,      // 502
  kUnavailable,     // 503
  kTooMany,         // 429
  kDraining,        // 500 "cannot schedule new futures"
};
inline constexpr std::size_t kRetryReasons = 8;

// Why a request that could have been tried again was not.
enum class RetryDenied : std::uint8_t {
  kBudget,   // the retry budget was spent
  kTries,    // it has had its tries
  kNobody,   // no other candidate
  kNotSafe,  // sent, lost, and its path is not known to be stateless
  kNotHeld,  // its body was too large to be kept
};
inline constexpr std::size_t kRetryDenials = 5;

// Why an answer that had begun was not finished.
enum class CutReason : std::uint8_t {
  kClientGone,     // the client left
  kUpstreamLost,   // the replica's connection ended early
  kUpstreamGap,    // the replica was silent for too long
  kReplicaGone,    // the replica's process is gone
  kClientStalled,  // the client took no byte for too long
  kShutdown,       // the grace of the shutdown was over
};
inline constexpr std::size_t kCutReasons = 6;

constexpr std::string_view label(RetryReason reason) {
  constexpr std::array<std::string_view, kRetryReasons> kLabels = {
      "refused", "connect_timeout", "lost", "bad_answer", "502", "503", "429", "draining"};
  return kLabels[static_cast<std::size_t>(reason)];
}
constexpr std::string_view label(RetryDenied reason) {
  constexpr std::array<std::string_view, kRetryDenials> kLabels = {"budget", "tries", "no_replica",
                                                                   "not_safe", "not_held"};
  return kLabels[static_cast<std::size_t>(reason)];
}
constexpr std::string_view label(CutReason reason) {
  constexpr std::array<std::string_view, kCutReasons> kLabels = {
      "client_gone", "upstream_lost", "upstream_gap", "replica_gone", "client_stalled", "shutdown"};
  return kLabels[static_cast<std::size_t>(reason)];
}

// What the proxy counts. Each data thread has a shard of its own, which it alone writes; only the
// per-replica figures are shared. No label value comes from a request.
class ProxyMetrics {
 public:
  static constexpr std::size_t kCodes = 600;

  // How right a number of tokens was that was expected.
  struct Expected {
    void add(std::uint32_t expected, std::uint32_t actual) {
      tokens.add(actual);
      error.add(expected > actual ? expected - actual : actual - expected);
    }
    Counter tokens;  // that there were
    Counter error;   // sum of the differences without their signs
  };

  // One thread's counts.
  struct alignas(64) Shard {
    // Requests. Own answers (404, health) count by their code too.
    void request_started() { in_flight.add(1); }
    // `code` is what the client was sent; 499 where it left before any.
    void request_ended(int code, Duration whole);

    std::array<Counter, kCodes> requests_by_code{};
    Gauge in_flight;
    Histogram whole{kLatencyBounds};  // from the request's head to the answer's end
    Histogram ttft{kLatencyBounds};   // streams only: to the first token
    Histogram itl{kGapBounds};        // streams only: between events with output
    // From a request's sending to a replica to the end of the answer, its own or by our limit.
    Longest longest_plain;
    Longest longest_stream;

    // Tries.
    void retried(RetryReason reason) { retries[static_cast<std::size_t>(reason)].add(); }
    void retry_denied(RetryDenied reason) { denied[static_cast<std::size_t>(reason)].add(); }
    void cut(CutReason reason) { cuts[static_cast<std::size_t>(reason)].add(); }
    std::array<Counter, kRetryReasons> retries{};
    std::array<Counter, kRetryDenials> denied{};
    std::array<Counter, kCutReasons> cuts{};
    WordCounter own_errors;  // by the word of the x-pointsman-error header
    Counter stale_resends;   // a reused connection had been closed; sent again on a fresh one

    // Token counts that were expected, of the requests whose answers told the right ones.
    Expected prompts_by_ids;   // prompts counted by their ids
    Expected prompts_by_text;  // prompts estimated from their bytes
    Expected outputs;          // answers, by what was learnt of their model

    // Prompts of models with a tokenizer.
    Counter prompts_with_ids;
    WordCounter prompts_without_ids;  // by why
    Counter prompt_bytes_encoded;     // that were turned into ids
    Counter prompt_bytes_known;       // whose ids were known

    Counter steering_removed;  // requests whose headers that steer routers were taken away

    // Bytes and bodies.
    Counter request_bytes;   // of bodies, from clients
    Counter response_bytes;  // of bodies, to clients
    Gauge held_body_bytes;
    Counter bodies_not_held;  // too large, or no memory left for them: streamed through

    // Connections.
    Gauge client_connections;
    Counter client_connections_opened;
    Counter connections_used_up;  // closed after as many requests as one may have
    Gauge upstream_connections;
    Counter upstream_connections_opened;
    Counter upstream_connections_reused;

    Counter tls_full;          // handshakes with clients
    Counter tls_resumed;       // of a session from before
    WordCounter tls_failures;  // by why, in one word
    WordCounter upstream_tls_failures;

    Counter upgrades;         // websocket and the like, passed through
    Counter internal_errors;  // broken invariants: defects of this program
  };

  explicit ProxyMetrics(std::size_t threads);
  ~ProxyMetrics();

  [[nodiscard]] Shard& shard(std::size_t thread) { return *shards_[thread]; }

  enum class ReplicaOutcome : std::uint8_t { kFinished, kFailed, kCancelled };
  static constexpr std::size_t kOutcomes = 3;

  // How one try on a replica ended. Any thread.
  void replica_try_ended(ReplicaIndex replica, ReplicaOutcome outcome);
  // A stream's first token came. Any thread.
  void replica_ttft(ReplicaIndex replica, Duration ttft, TimePoint now);
  // The replica was removed: its figures start again. The housekeeping thread.
  void forget_replica(ReplicaIndex replica);

  struct ReplicaFigures {
    std::array<std::uint64_t, kOutcomes> tries{};
    RecentQuantiles::Snapshot ttft;
  };
  [[nodiscard]] ReplicaFigures replica(ReplicaIndex replica, TimePoint now) const;

  // Sums over the shards.
  [[nodiscard]] std::int64_t in_flight() const;
  [[nodiscard]] std::int64_t held_body_bytes() const;

  // The families of the data plane. Those of the replicas, the decisions and the feeds are written
  // by the admin port, which knows them (admin/metrics_page.h).
  void write(Exposition& out) const;

 private:
  struct PerReplica {
    std::array<std::atomic<std::uint64_t>, kOutcomes> tries{};
    RecentQuantiles ttft;
  };
  PerReplica& of(ReplicaIndex replica);

  std::vector<std::unique_ptr<Shard>> shards_;
  // Made at a replica's first request and kept until the end; by ReplicaIndex.
  std::vector<std::atomic<PerReplica*>> replicas_;
};

constexpr std::string_view label(ProxyMetrics::ReplicaOutcome outcome) {
  constexpr std::array<std::string_view, ProxyMetrics::kOutcomes> kLabels = {"finished", "failed",
                                                                             "cancelled"};
  return kLabels[static_cast<std::size_t>(outcome)];
}

}  // namespace pointsman
