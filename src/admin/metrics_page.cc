#include "admin/metrics_page.h"

#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "admin/replica_figures.h"
#include "base/decimal.h"

namespace pointsman {
namespace {

using Type = Exposition::Type;

constexpr std::size_t kNamedKeys = 200;

class Page {
 public:
  explicit Page(const ShownState& state)
      : state_(state), now_(state.clock.now()), replicas_(replica_figures(state)) {}

  std::string write() {
    state_.metrics.write(out_);
    write_replicas();
    write_router();
    write_kv_events();
    write_certificates();
    write_keys();
    out_.family("pointsman_ready", Type::kGauge, "1 where a request could be served now.");
    out_.sample({}, state_.ready && state_.ready() ? 1.0 : 0.0);
    if (state_.access_log != nullptr) {
      out_.family("pointsman_access_log_lines_dropped_total", Type::kCounter,
                  "Lines of the access log that were lost since it could not be written in time.");
      out_.sample({}, state_.access_log->dropped_lines());
    }
    if (state_.decision_log != nullptr) {
      out_.family("pointsman_decision_log_lines_dropped_total", Type::kCounter,
                  "Lines of the decision log that were lost since it could not be written, or not "
                  "in time.");
      out_.sample({}, state_.decision_log->dropped_lines());
    }
    out_.family("pointsman_build_info", Type::kGauge, "Always 1; the version is in the label.");
    out_.sample({{"version", state_.version}}, 1.0);
    return out_.take();
  }

 private:
  // One set of files may be in use with and without verification: its samples are summed up.
  void write_certificates() {
    std::map<std::pair<std::string_view, std::string>, TlsContext::Reloads> reloads;
    std::map<std::pair<std::string_view, std::string>, double> expiries;
    const auto add = [&](std::string_view side, const TlsContext& context) {
      const std::string& file =
          context.files().certificate.empty() ? context.files().ca : context.files().certificate;
      TlsContext::Reloads& sum = reloads[{side, file}];
      sum.good += context.reloads().good;
      sum.failed += context.reloads().failed;
      if (const auto end = context.expires()) {
        expiries[{side, file}] = std::chrono::duration<double>(end->time_since_epoch()).count();
      }
    };
    if (state_.tls != nullptr) add("clients", *state_.tls);
    if (state_.tls_clients != nullptr) {
      for (const auto& client : state_.tls_clients->all()) add("replicas", *client);
    }
    out_.family("pointsman_tls_certificate_expiry_timestamp_seconds", Type::kGauge,
                "When our certificate, or one of its chain, ceases to be valid, in seconds since "
                "1970.");
    for (const auto& [key, end] : expiries) {
      out_.sample({{"towards", key.first}, {"file", key.second}}, end);
    }
    out_.family("pointsman_tls_certificate_reloads_total", Type::kCounter,
                "Times that files of certificates were read again, by whether they could be used.");
    for (const auto& [key, sum] : reloads) {
      out_.sample({{"towards", key.first}, {"file", key.second}, {"result", "good"}}, sum.good);
      out_.sample({{"towards", key.first}, {"file", key.second}, {"result", "failed"}}, sum.failed);
    }
  }

  // One sample per replica; `value` gives NaN where there is none.
  template <typename Value>
  void per_replica(std::string_view name, Type type, std::string_view help, Value&& value) {
    out_.family(name, type, help);
    for (const ReplicaFigures& replica : replicas_) {
      const double sample = static_cast<double>(value(replica));
      if (!std::isnan(sample)) {
        out_.sample({{"replica", replica.status.spec.url}, {"pool", replica.status.spec.pool}},
                    sample);
      }
    }
  }

  template <typename Value>
  void per_report(std::string_view name, std::string_view help, Value&& value) {
    per_replica(name, Type::kGauge, help, [this, &value](const ReplicaFigures& replica) {
      if (!replica.signals.fresh(now_)) return std::nan("");
      const auto reported = value(replica.signals);
      if constexpr (std::is_same_v<decltype(reported), const float>) {
        return decimal(reported);
      } else {
        return static_cast<double>(reported);
      }
    });
  }

  void write_replicas() {
    const auto gauge = [this](std::string_view name, std::string_view help, auto value) {
      per_replica(name, Type::kGauge, help, value);
    };
    gauge("pointsman_replica_usable",
          "1 where the replica may be given new requests: ready, awake, not ejected, not draining.",
          [](const ReplicaFigures& replica) { return replica.status.usable ? 1 : 0; });
    gauge("pointsman_replica_ejected", "1 while the replica is left out for what requests met.",
          [this](const ReplicaFigures& replica) {
            return replica.status.health.ejected(now_) ? 1 : 0;
          });
    gauge("pointsman_replica_draining", "1 while the replica is being drained.",
          [](const ReplicaFigures& replica) { return replica.status.draining ? 1 : 0; });

    gauge("pointsman_replica_in_flight", "Requests sent to the replica and not ended.",
          [](const ReplicaFigures& replica) { return replica.load.in_flight; });
    gauge("pointsman_replica_awaiting_first_token",
          "Those of them that may still be queued or in prefill.",
          [](const ReplicaFigures& replica) { return replica.load.awaiting; });
    gauge("pointsman_replica_outstanding_prefill_tokens",
          "Prompt tokens charged to the replica and expected to be still uncomputed.",
          [](const ReplicaFigures& replica) { return replica.load.prefill_tokens; });
    gauge("pointsman_replica_charged_prompt_tokens",
          "Prompt tokens of all requests in flight on the replica.",
          [](const ReplicaFigures& replica) { return replica.load.prompt_tokens; });
    gauge("pointsman_replica_prefill_tokens_per_second",
          "Prompt tokens that the replica computes in a second, as learnt from streams.",
          [](const ReplicaFigures& replica) { return replica.prefill_rate; });

    write_cached_tokens();

    per_report("pointsman_replica_kv_usage", "Share of the KV cache in use, as reported.",
               [](const Signals& signals) { return signals.kv_usage; });
    per_report("pointsman_replica_running", "Requests in the running batch, as reported.",
               [](const Signals& signals) { return signals.running; });
    per_report("pointsman_replica_waiting", "Requests queued in the engine, as reported.",
               [](const Signals& signals) { return signals.waiting; });
    per_report("pointsman_replica_queued_tokens",
               "Prompt tokens queued in the engine, as reported.",
               [](const Signals& signals) { return signals.queued_tokens; });
    per_report("pointsman_replica_prefix_hit_rate",
               "Share of prompt tokens found cached since the engine's start, as reported.",
               [](const Signals& signals) { return signals.prefix_hit_rate; });
    per_report("pointsman_replica_kv_capacity_tokens", "Size of the KV cache, as reported.",
               [](const Signals& signals) {
                 return signals.kv_capacity_tokens == 0
                            ? std::nan("")
                            : static_cast<double>(signals.kv_capacity_tokens);
               });
    gauge("pointsman_replica_report_age_seconds",
          "Age of the replica's newest report; absent where there was none.",
          [this](const ReplicaFigures& replica) {
            return replica.signals.observed_at == TimePoint{}
                       ? std::nan("")
                       : to_seconds(now_ - replica.signals.observed_at);
          });

    out_.family("pointsman_replica_scrapes_total", Type::kCounter,
                "Scrapes of the replica's metrics page.");
    for (const ReplicaFigures& replica : replicas_) {
      if (!replica.scrape) continue;
      const std::string& url = replica.status.spec.url;
      out_.sample({{"replica", url}, {"result", "good"}}, replica.scrape->good);
      out_.sample({{"replica", url}, {"result", "failed"}}, replica.scrape->failed);
    }
    out_.family("pointsman_replica_tries_total", Type::kCounter,
                "Requests sent to the replica, by how they ended there.");
    for (const ReplicaFigures& replica : replicas_) {
      for (std::size_t i = 0; i < ProxyMetrics::kOutcomes; ++i) {
        const auto outcome = label(static_cast<ProxyMetrics::ReplicaOutcome>(i));
        out_.sample({{"replica", replica.status.spec.url}, {"outcome", outcome}},
                    replica.requests.tries[i]);
      }
    }
    out_.family("pointsman_replica_ttft_seconds", Type::kGauge,
                "Time to first token of streams in the last minute; absent where there were none.");
    for (const ReplicaFigures& replica : replicas_) {
      const RecentQuantiles::Snapshot& ttft = replica.requests.ttft;
      if (ttft.count == 0) continue;
      const std::string& url = replica.status.spec.url;
      out_.sample({{"replica", url}, {"quantile", "0.5"}}, to_seconds(ttft.p50));
      out_.sample({{"replica", url}, {"quantile", "0.95"}}, to_seconds(ttft.p95));
    }
  }

  // Predicted against actual cached tokens, of replicas where anything was compared.
  void write_cached_tokens() {
    per_replica("pointsman_replica_overpredicted_tokens_total", Type::kCounter,
                "Prompt tokens that were expected to be cached on the replica and were not.",
                [](const ReplicaFigures& replica) { return replica.cached_error.over_tokens; });
    per_replica("pointsman_replica_underpredicted_tokens_total", Type::kCounter,
                "Prompt tokens that the replica found cached although nobody expected it.",
                [](const ReplicaFigures& replica) { return replica.cached_error.under_tokens; });
    out_.family("pointsman_replica_cached_tokens_error", Type::kHistogram,
                "Tokens between what was expected to be cached and what was, whichever way, by "
                "answer.");
    for (const ReplicaFigures& replica : replicas_) {
      const CachedTokensError& error = replica.cached_error;
      if (error.answers == 0) continue;
      HistogramValue value;
      value.buckets = error.buckets;
      value.sum = static_cast<double>(error.over_tokens) + static_cast<double>(error.under_tokens);
      out_.histogram({{"replica", replica.status.spec.url}, {"pool", replica.status.spec.pool}},
                     CachedTokensError::kBounds, value);
    }
    out_.family("pointsman_replica_believed_share", Type::kGauge,
                "Share of the prompt tokens that the replica should have cached which is believed, "
                "by what the prediction is made from.");
    for (const ReplicaFigures& replica : replicas_) {
      for (std::size_t i = 0; i < kKnowledges; ++i) {
        out_.sample({{"replica", replica.status.spec.url},
                     {"pool", replica.status.spec.pool},
                     {"from", label(static_cast<Knowledge>(i))}},
                    replica.believed_share[i]);
      }
    }
    per_replica("pointsman_replica_assumed_cache_blocks", Type::kGauge,
                "Blocks of the prefix index that the replica is taken to have room for.",
                [](const ReplicaFigures& replica) {
                  return replica.assumed_blocks == 0 ? std::nan("")
                                                     : static_cast<double>(replica.assumed_blocks);
                });
  }

  // The names of a key file, of which the first have a series each and the others one together: a
  // store of metrics that can bear ten thousand series for each family is rare.
  void write_keys() {
    if (state_.keys == nullptr) return;
    const std::shared_ptr<const KeySet> keys = state_.keys->keys();
    const auto by_name = [&](std::string_view name, Type type, std::string_view help, auto value) {
      out_.family(name, type, help);
      std::uint64_t others = 0;
      for (std::size_t i = 0; i < keys->uses().size(); ++i) {
        const KeyUse& use = *keys->uses()[i];
        if (i < kNamedKeys) {
          out_.sample({{"key", use.name()}}, std::uint64_t{value(use)});
        } else {
          others += value(use);
        }
      }
      if (keys->uses().size() > kNamedKeys) out_.sample({{"key", "(others)"}}, others);
    };
    by_name("pointsman_key_requests_total", Type::kCounter,
            "Requests let in with a key of this name.",
            [](const KeyUse& use) { return use.requests(); });
    by_name("pointsman_key_requests_refused_total", Type::kCounter,
            "Requests refused since as many with a key of this name ran as may.",
            [](const KeyUse& use) { return use.refused(); });
    by_name("pointsman_key_requests_in_flight", Type::kGauge,
            "Requests with a key of this name under way.",
            [](const KeyUse& use) { return use.running(); });
    out_.family("pointsman_keys", Type::kGauge, "Keys that are valid.");
    out_.sample({}, std::uint64_t{keys->size()});
    out_.family("pointsman_key_file_reads_total", Type::kCounter,
                "How often the key file was read again; where that failed, the keys stayed.");
    out_.sample({{"result", "good"}}, state_.keys->reloads() - state_.keys->failures());
    out_.sample({{"result", "failed"}}, state_.keys->failures());
  }

  void write_router() {
    struct Figures {
      Router::Counters counters;
      std::size_t index_bytes;
      std::uint64_t index_blocks;
      std::uint64_t evicted_blocks;
      std::size_t engine_bytes;
      std::uint64_t engine_blocks;
      std::uint64_t engine_overflows;
    };
    const Figures figures = state_.router.with([](const Router& router) {
      const EngineCaches& engines = router.engine_caches();
      return Figures{router.counters(),       router.index().bytes(),
                     router.index().blocks(), router.index().evicted_blocks(),
                     engines.bytes(),         engines.blocks(),
                     engines.overflows()};
    });
    const auto counter = [this](std::string_view name, std::uint64_t value, std::string_view help) {
      out_.family(name, Type::kCounter, help);
      out_.sample({}, value);
    };
    out_.family("pointsman_decisions_total", Type::kCounter,
                "Choices of a replica, by why it was chosen.");
    for (std::size_t i = 0; i < kReasons; ++i) {
      out_.sample({{"reason", label(static_cast<Reason>(i))}}, figures.counters.decisions[i]);
    }
    counter("pointsman_decisions_rejected_total", figures.counters.rejected,
            "Requests for which there was no usable replica.");
    counter("pointsman_pool_fallbacks_total", figures.counters.pool_fallbacks,
            "Requests sent to the general pool since their own had no usable replica.");
    out_.family("pointsman_prefix_replications_total", Type::kCounter,
                "Requests sent to a replica that lacks a long beginning of their prompt although "
                "others hold it, by why: all of those were saturated, or it had less work.");
    for (std::size_t i = 0; i < kReplications; ++i) {
      out_.sample({{"why", label(static_cast<Replication>(i))}}, figures.counters.replications[i]);
    }
    const auto cached = [&](std::string_view name, std::string_view help,
                            std::uint64_t Router::Counters::Cached::* value) {
      out_.family(name, Type::kCounter, help);
      for (std::size_t i = 0; i < kKnowledges; ++i) {
        out_.sample({{"from", label(static_cast<Knowledge>(i))}},
                    figures.counters.cached[i].*value);
      }
    };
    using Cached = Router::Counters::Cached;
    cached("pointsman_cached_tokens_answers_total",
           "Requests whose answer said how many prompt tokens were found cached, by what the "
           "prediction was made from.",
           &Cached::answers);
    cached("pointsman_prompt_tokens_total", "Prompt tokens of those requests.",
           &Cached::prompt_tokens);
    cached("pointsman_predicted_cached_tokens_total",
           "Prompt tokens of those requests that were expected to be cached where they were sent.",
           &Cached::predicted_tokens);
    cached("pointsman_actual_cached_tokens_total",
           "Prompt tokens of those requests that the engines found cached.",
           &Cached::actual_tokens);
    cached("pointsman_cached_tokens_error_total",
           "Prompt tokens by which the expectation missed, too many or too few.",
           &Cached::missed_by_tokens);
    out_.family("pointsman_prefix_index_bytes", Type::kGauge, "Memory of the prefix index.");
    out_.sample({}, std::uint64_t{figures.index_bytes});
    out_.family("pointsman_prefix_index_blocks", Type::kGauge,
                "Blocks in the prefix index, counted for each replica that holds them.");
    out_.sample({}, figures.index_blocks);
    counter("pointsman_prefix_index_evicted_blocks_total", figures.evicted_blocks,
            "Blocks dropped from the prefix index for want of room.");
    out_.family("pointsman_engine_caches_bytes", Type::kGauge,
                "Memory of what the engines' own cache events say.");
    out_.sample({}, std::uint64_t{figures.engine_bytes});
    out_.family("pointsman_engine_caches_blocks", Type::kGauge,
                "Blocks that the engines say they hold, counted for each replica.");
    out_.sample({}, figures.engine_blocks);
    counter("pointsman_engine_caches_overflows_total", figures.engine_overflows,
            "Replicas whose blocks were given up for want of room.");
  }

  // What the engines' cache events come to, by replica and data-parallel rank.
  void write_kv_events() {
    struct Shown {
      const std::string& url;
      std::string rank;
      const KvEventFeed::Status& status;
    };
    std::vector<Shown> all;
    for (const ReplicaFigures& replica : replicas_) {
      for (const KvEventFeed::Status& rank : replica.kv_events) {
        all.push_back({replica.status.spec.url, std::to_string(rank.rank), rank});
      }
    }
    const auto family = [&](std::string_view name, Type type, std::string_view help, auto value) {
      out_.family(name, type, help);
      for (const Shown& shown : all) {
        const double sample = static_cast<double>(value(shown.status));
        if (std::isnan(sample)) continue;
        out_.sample({{"replica", shown.url}, {"rank", shown.rank}}, sample);
      }
    };
    using Status = KvEventFeed::Status;
    out_.family("pointsman_kv_events_trust", Type::kGauge,
                "1 for how far the replica's cache events can be believed.");
    for (const Shown& shown : all) {
      for (const Trust trust : {Trust::kNone, Trust::kReplaying, Trust::kGap, Trust::kTrusted}) {
        out_.sample({{"replica", shown.url}, {"rank", shown.rank}, {"trust", label(trust)}},
                    shown.status.trust == trust ? 1.0 : 0.0);
      }
    }
    family("pointsman_kv_events_batches_total", Type::kCounter, "Batches of events applied.",
           [](const Status& status) { return status.batches.batches; });
    family("pointsman_kv_events_duplicates_total", Type::kCounter,
           "Batches that came twice and were left out.",
           [](const Status& status) { return status.batches.duplicates; });
    family("pointsman_kv_events_gaps_total", Type::kCounter,
           "Times that batches were found missing.",
           [](const Status& status) { return status.batches.gaps; });
    family("pointsman_kv_events_replays_total", Type::kCounter,
           "Times that the engine was asked for batches again, and answered.",
           [](const Status& status) { return status.batches.replays; });
    family("pointsman_kv_events_losses_total", Type::kCounter,
           "Times that batches were missed for good.",
           [](const Status& status) { return status.batches.losses; });
    family("pointsman_kv_events_restarts_total", Type::kCounter,
           "Restarts of the engine that its events told of.",
           [](const Status& status) { return status.batches.restarts; });
    family("pointsman_kv_events_undecodable_total", Type::kCounter,
           "Batches and events that could not be read.",
           [](const Status& status) { return status.batches.undecodable; });
    out_.family("pointsman_kv_events_connection_faults_total", Type::kCounter,
                "Connections to publishers of events that ended or could not be made, by reason.");
    for (const Shown& shown : all) {
      for (std::size_t fault = 1; fault < kLinkFaults; ++fault) {
        out_.sample({{"replica", shown.url},
                     {"rank", shown.rank},
                     {"reason", label(static_cast<LinkFault>(fault))}},
                    shown.status.faults[fault]);
      }
    }
    out_.family("pointsman_kv_events_blocks_total", Type::kCounter,
                "The engine's blocks that events told of, by what became of them.");
    for (const Shown& shown : all) {
      const EngineBlocks::Counts& blocks = shown.status.events;
      const auto sample = [&](std::string_view what, std::uint64_t value) {
        out_.sample({{"replica", shown.url}, {"rank", shown.rank}, {"event", what}}, value);
      };
      sample("stored", blocks.stored);
      sample("removed", blocks.removed);
      sample("left_out", blocks.left_out);
      sample("other_group", blocks.other_groups);
      sample("unplaced", blocks.unplaced);
      sample("conflict", blocks.conflicts);
      sample("refused", blocks.refused);
    }
    family("pointsman_kv_events_blocks_held", Type::kGauge,
           "The engine's blocks that are known to be in its caches.",
           [](const Status& status) { return status.blocks; });
    family("pointsman_kv_events_table_bytes", Type::kGauge,
           "Memory for the engine's names of its blocks.",
           [](const Status& status) { return status.table_bytes; });
    family("pointsman_kv_events_delay_seconds", Type::kGauge,
           "From the making of the last batch, by the engine's clock, to its coming here.",
           [](const Status& status) { return status.delay_s.value_or(std::nan("")); });
    out_.family("pointsman_kv_events_stray_messages_total", Type::kCounter,
                "Messages whose topic names no replica, or that are no events.");
    if (state_.kv_events != nullptr) out_.sample({}, state_.kv_events->strays());
  }

  const ShownState& state_;
  const TimePoint now_;
  const std::vector<ReplicaFigures> replicas_;
  Exposition out_;
};

}  // namespace

std::string metrics_page(const ShownState& state) {
  return Page(state).write();
}

}  // namespace pointsman
