#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "config/load.h"
#include "core/router.h"
#include "features/prompt_models.h"
#include "feeds/feeds.h"
#include "feeds/kv_event_feed.h"
#include "net/tls_context.h"
#include "proxy/proxy_options.h"
#include "runtime/fleet.h"
#include "runtime/health.h"

namespace pointsman {

// The configuration in the terms of each part of the router. Nothing is decided here.

// Tokens of one block of text, until more is known of a model.
[[nodiscard]] std::uint32_t text_block_tokens(const Config& config);
[[nodiscard]] Router::Options router_options(const Config& config, std::uint64_t seed);
[[nodiscard]] HealthOptions health_options(const Config& config);
[[nodiscard]] Feeds::Options feeds_options(const Config& config, std::uint64_t seed);
// Nothing where no replica's events are asked for.
[[nodiscard]] std::optional<KvEventFeed::Options> kv_event_options(const Config& config,
                                                                   std::uint64_t seed);
// `threads` and the address of `listen` are filled in by the caller.
[[nodiscard]] ProxyOptions proxy_options(const Config& config, std::uint64_t seed);
// TLS of the data port; null: it speaks plain HTTP. Errors begin with the key at fault.
[[nodiscard]] Result<std::unique_ptr<TlsServer>> tls_server(const Config& config);
// Reads the tokenizers of the configuration; takes up to a second for each. The error has a line
// per fault, with file, line and key. Null: there are none. `warnings` gets what is doubtful.
[[nodiscard]] Result<std::unique_ptr<PromptModels>> prompt_models(
    const LoadedConfig& loaded, std::uint64_t seed, std::vector<std::string>& warnings);
// Of the chains of token ids, in requests and in engines' events alike.
[[nodiscard]] std::uint64_t chain_secret(std::uint64_t seed);
[[nodiscard]] PoolPurpose pool_purpose(const std::string& word);
// `tls`: where its TLS is taken from. The URL must have passed the configuration's checks.
[[nodiscard]] Result<ReplicaSpec> replica_spec(const ReplicaConfig& replica,
                                               const std::string& pool, const Config& config,
                                               TlsClients& tls);

}  // namespace pointsman
