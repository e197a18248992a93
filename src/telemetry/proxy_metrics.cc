#include "telemetry/proxy_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>

namespace pointsman {

void ProxyMetrics::Shard::request_ended(int code, Duration duration) {
  in_flight.sub(1);
  const bool known = code >= 100 && code < static_cast<int>(requests_by_code.size());
  requests_by_code[known ? static_cast<std::size_t>(code) : 0].add();
  whole.observe(duration);
}

ProxyMetrics::ProxyMetrics(std::size_t threads) : replicas_(kMaxReplicas) {
  for (std::size_t i = 0; i < threads; ++i) shards_.push_back(std::make_unique<Shard>());
}

ProxyMetrics::~ProxyMetrics() {
  for (const auto& replica : replicas_) delete replica.load();
}

ProxyMetrics::PerReplica& ProxyMetrics::of(ReplicaIndex replica) {
  std::atomic<PerReplica*>& place = replicas_[replica];
  PerReplica* figures = place.load(std::memory_order_acquire);
  if (figures != nullptr) return *figures;
  auto made = std::make_unique<PerReplica>();
  if (place.compare_exchange_strong(figures, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *figures;
}

void ProxyMetrics::replica_try_ended(ReplicaIndex replica, ReplicaOutcome outcome) {
  if (replica >= replicas_.size()) return;
  of(replica).tries[static_cast<std::size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

void ProxyMetrics::replica_ttft(ReplicaIndex replica, Duration ttft, TimePoint now) {
  if (replica >= replicas_.size()) return;
  of(replica).ttft.observe(ttft, now);
}

void ProxyMetrics::forget_replica(ReplicaIndex replica) {
  if (replica >= replicas_.size()) return;
  PerReplica* figures = replicas_[replica].load(std::memory_order_acquire);
  if (figures == nullptr) return;
  for (auto& count : figures->tries) count.store(0, std::memory_order_relaxed);
  figures->ttft.clear();
}

ProxyMetrics::ReplicaFigures ProxyMetrics::replica(ReplicaIndex replica, TimePoint now) const {
  ReplicaFigures figures;
  if (replica >= replicas_.size()) return figures;
  const PerReplica* held = replicas_[replica].load(std::memory_order_acquire);
  if (held == nullptr) return figures;
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    figures.tries[i] = held->tries[i].load(std::memory_order_relaxed);
  }
  figures.ttft = held->ttft.snapshot(now);
  return figures;
}

std::int64_t ProxyMetrics::in_flight() const {
  std::int64_t sum = 0;
  for (const auto& shard : shards_) sum += shard->in_flight.value();
  return sum;
}

std::int64_t ProxyMetrics::held_body_bytes() const {
  std::int64_t sum = 0;
  for (const auto& shard : shards_) sum += shard->held_body_bytes.value();
  return sum;
}

void ProxyMetrics::write(Exposition& out) const {
  using Type = Exposition::Type;
  const auto sum = [this](Counter Shard::* counter) {
    std::uint64_t total = 0;
    for (const auto& shard : shards_) total += (*shard.*counter).value();
    return total;
  };
  const auto gauge_sum = [this](Gauge Shard::* gauge) {
    std::int64_t total = 0;
    for (const auto& shard : shards_) total += (*shard.*gauge).value();
    return static_cast<double>(total);
  };
  const auto counter = [&](std::string_view name, Counter Shard::* member, std::string_view help) {
    out.family(name, Type::kCounter, help);
    out.sample({}, sum(member));
  };
  const auto gauge = [&](std::string_view name, Gauge Shard::* member, std::string_view help) {
    out.family(name, Type::kGauge, help);
    out.sample({}, gauge_sum(member));
  };
  const auto histogram = [&](std::string_view name, Histogram Shard::* member,
                             std::string_view help) {
    out.family(name, Type::kHistogram, help);
    HistogramValue total;
    for (const auto& shard : shards_) total += (*shard.*member).value();
    out.histogram({}, (*shards_.front().*member).bounds(), total);
  };
  // One sample per reason, zeros included, so that a rate over it exists from the start.
  const auto by_reason = [&]<typename Reason, std::size_t kCount>(
                             std::string_view name, std::array<Counter, kCount> Shard::* counters,
                             std::type_identity<Reason>, std::string_view help) {
    out.family(name, Type::kCounter, help);
    for (std::size_t i = 0; i < kCount; ++i) {
      std::uint64_t total = 0;
      for (const auto& shard : shards_) total += (*shard.*counters)[i].value();
      out.sample({{"reason", label(static_cast<Reason>(i))}}, total);
    }
  };

  out.family("pointsman_requests_total", Type::kCounter,
             "Requests ended on the data port, by the status code that the client was sent.");
  for (std::size_t code = 0; code < kCodes; ++code) {
    std::uint64_t total = 0;
    for (const auto& shard : shards_) total += shard->requests_by_code[code].value();
    if (total > 0) out.sample({{"code", std::to_string(code)}}, total);
  }
  gauge("pointsman_requests_in_flight", &Shard::in_flight, "Requests under way on the data port.");
  histogram("pointsman_request_duration_seconds", &Shard::whole,
            "From a request's head to the end of its answer.");
  histogram("pointsman_time_to_first_token_seconds", &Shard::ttft,
            "Streams: from the request's head to the first event with output.");
  histogram("pointsman_inter_token_latency_seconds", &Shard::itl,
            "Streams: between one event with output and the next.");
  out.family("pointsman_longest_answer_seconds", Type::kGauge,
             "Longest time from a replica's choice to the end of its answer, of plain answers and "
             "of streams, whether they ended well or were broken off by a limit.");
  const auto longest = [&](std::string_view kind, Longest Shard::* member) {
    Duration most{};
    for (const auto& shard : shards_) most = std::max(most, (*shard.*member).value());
    out.sample({{"kind", kind}}, to_seconds(most));
  };
  longest("plain", &Shard::longest_plain);
  longest("stream", &Shard::longest_stream);

  by_reason("pointsman_retries_total", &Shard::retries, std::type_identity<RetryReason>{},
            "Requests tried again on another replica, by what went wrong on the one before.");
  by_reason("pointsman_retries_denied_total", &Shard::denied, std::type_identity<RetryDenied>{},
            "Failed tries that were not repeated although nothing had gone to the client.");
  by_reason("pointsman_answers_cut_total", &Shard::cuts, std::type_identity<CutReason>{},
            "Requests whose exchange was broken off.");
  counter("pointsman_stale_resends_total", &Shard::stale_resends,
          "Requests sent again on a fresh connection since the reused one had been closed.");

  const auto by_word = [&](std::string_view name, std::string_view label_name,
                           WordCounter Shard::* counters, std::string_view help) {
    out.family(name, Type::kCounter, help);
    std::map<std::string_view, std::uint64_t> words;
    for (const auto& shard : shards_) {
      (*shard.*counters).for_each([&words](std::string_view word, std::uint64_t count) {
        words[word] += count;
      });
    }
    for (const auto& [word, count] : words) out.sample({{label_name, word}}, count);
  };
  by_word("pointsman_own_errors_total", "kind", &Shard::own_errors,
          "Errors that the router answered with itself, by the word of x-pointsman-error.");

  const auto expected = [&](std::string_view name, Counter Expected::* member,
                            std::string_view help) {
    out.family(name, Type::kCounter, help);
    const auto sample = [&](std::string_view what, Expected Shard::* of) {
      std::uint64_t total = 0;
      for (const auto& shard : shards_) total += ((*shard.*of).*member).value();
      out.sample({{"what", what}}, total);
    };
    sample("prompt_ids", &Shard::prompts_by_ids);
    sample("prompt_text", &Shard::prompts_by_text);
    sample("output", &Shard::outputs);
  };
  expected("pointsman_expected_tokens_total", &Expected::tokens,
           "Tokens, as the answers' usage told them, of prompts counted by their ids, of prompts "
           "estimated from their text, and of answers whose length was expected.");
  expected("pointsman_expected_tokens_error_total", &Expected::error,
           "Of the same: by how much the number that was expected differed, without its sign.");

  counter("pointsman_prompts_tokenized_total", &Shard::prompts_with_ids,
          "Prompts of models with a tokenizer that became token ids.");
  by_word("pointsman_prompts_not_tokenized_total", "reason", &Shard::prompts_without_ids,
          "Prompts of models with a tokenizer that are known by their text alone, by why.");
  counter("pointsman_prompt_bytes_encoded_total", &Shard::prompt_bytes_encoded,
          "Bytes of prompts that were turned into token ids.");
  counter("pointsman_prompt_bytes_known_total", &Shard::prompt_bytes_known,
          "Bytes of prompts whose token ids were known from before.");

  counter("pointsman_request_body_bytes_total", &Shard::request_bytes,
          "Bytes of request bodies received from clients.");
  counter("pointsman_response_body_bytes_total", &Shard::response_bytes,
          "Bytes of answers' bodies sent to clients.");
  gauge("pointsman_held_body_bytes", &Shard::held_body_bytes,
        "Memory of request bodies held for reading and for retries, of those beyond the 16 KiB "
        "that each connection reads into.");
  counter("pointsman_bodies_not_held_total", &Shard::bodies_not_held,
          "Request bodies that streamed through: larger than features.max_body, or "
          "limits.body_memory was used up.");

  gauge("pointsman_client_connections", &Shard::client_connections,
        "Open connections of clients on the data port.");
  counter("pointsman_client_connections_opened_total", &Shard::client_connections_opened,
          "Connections accepted on the data port.");
  out.family("pointsman_tls_handshakes_total", Type::kCounter,
             "TLS handshakes with clients that ended well, by whether a session from before went "
             "on.");
  out.sample({{"session", "new"}}, sum(&Shard::tls_full));
  out.sample({{"session", "resumed"}}, sum(&Shard::tls_resumed));
  by_word("pointsman_tls_handshakes_failed_total", "reason", &Shard::tls_failures,
          "TLS handshakes with clients that failed, by why.");
  by_word("pointsman_upstream_tls_failures_total", "reason", &Shard::upstream_tls_failures,
          "Connections to replicas on which TLS failed, in the handshake or later, by why.");
  counter("pointsman_client_connections_used_up_total", &Shard::connections_used_up,
          "Connections of clients closed after limits.requests_per_connection requests.");
  counter(
      "pointsman_steering_removed_total", &Shard::steering_removed,
      "Requests of clients that are not trusted whose headers that steer routers were removed.");
  gauge("pointsman_upstream_connections", &Shard::upstream_connections,
        "Open connections to replicas, idle ones included.");
  counter("pointsman_upstream_connections_opened_total", &Shard::upstream_connections_opened,
          "Connections opened to replicas for requests.");
  counter("pointsman_upstream_connections_reused_total", &Shard::upstream_connections_reused,
          "Requests sent on a connection that had served another before.");
  counter("pointsman_upgrades_total", &Shard::upgrades,
          "Connections that became a websocket or another protocol and were passed through.");
  counter("pointsman_internal_errors_total", &Shard::internal_errors,
          "Broken invariants: defects of this program, please report them.");
}

}  // namespace pointsman
