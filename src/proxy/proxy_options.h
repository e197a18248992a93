#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "http/head.h"
#include "proxy/retry_rules.h"

namespace pointsman {

// Limits on silence; none is on total time.
struct ProxyTimeouts {
  Duration connect = std::chrono::seconds(5);
  Duration first_byte_stream = std::chrono::minutes(10);  // from the request sent to a body byte
  Duration first_byte_plain = std::chrono::minutes(60);   // likewise: the whole making of an answer
  Duration gap = std::chrono::minutes(5);                 // between bytes of an answer
  Duration head_hold = std::chrono::seconds(60);          // a stream's head waits for its body
  Duration error_body = std::chrono::milliseconds(500);   // of an answer that may be retried
  Duration upstream_idle = std::chrono::seconds(3);
  Duration upstream_unacknowledged = std::chrono::seconds(30);  // TCP_USER_TIMEOUT
  Duration client_head = std::chrono::seconds(10);              // a request's head, from first byte
  Duration client_body_gap = std::chrono::seconds(60);          // between bytes of a request's body
  Duration client_idle = std::chrono::seconds(75);              // between requests
  Duration client_stall = std::chrono::minutes(5);              // a client that takes no byte
  Duration shutdown_delay{0};                                   // serve on, unready, after drain()
  Duration shutdown_grace = std::chrono::minutes(10);           // running exchanges may finish
  Duration stale = std::chrono::seconds(1);  // a reused connection that ends this soon was stale
};

struct ProxyLimits {
  HeadLimits head;                                    // of requests and of answers
  std::size_t request_body = std::size_t{512} << 20;  // larger bodies are refused; 0: none is
  std::size_t body_rate = 500;                        // bytes per second of a body; 0: no limit
  std::size_t max_body = std::size_t{16} << 20;       // bodies up to here are held and read whole
  std::size_t body_memory = std::size_t{1} << 30;     // all held bodies together
  std::size_t held_answer = std::size_t{64} << 10;    // of an answer that may be retried
  std::uint32_t connections = 16'384;                 // of clients; 0: as descriptors allow
  std::uint32_t connections_per_client = 0;           // of one address; 0: no limit
  std::uint32_t requests_per_connection = 100'000;    // 0: no limit
};

// What the data plane is told at its start. Durations of zero or less switch a limit off.
struct ProxyOptions {
  std::string listen_address = "0.0.0.0";  // an IP address
  std::uint16_t listen_port = 8080;        // 0: any free one
  std::size_t threads = 1;

  ProxyTimeouts timeouts;
  ProxyLimits limits;
  RetryOptions retry;

  // What is passed on to replicas; an entry that ends in "/*" stands for everything below it. And
  // the exceptions to those.
  std::vector<std::string> proxied_paths = {
      "/v1/*",     "/rerank",     "/v2/rerank", "/score",      "/classify",   "/pooling",
      "/tokenize", "/detokenize", "/generate",  "/completion", "/invocations"};
  std::vector<std::string> refused_paths = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"};
  // Paths whose requests leave nothing behind in a replica: safe to send again after a loss.
  std::vector<std::string> stateless_paths = {
      "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
      "/v1/rerank",           "/v1/score",       "/v1/classify",   "/v1/pooling",   "/rerank",
      "/v2/rerank",           "/score",          "/classify",      "/pooling",      "/tokenize",
      "/detokenize"};

  // Networks whose clients are believed: headers that steer pass, and connections are not counted
  // by address.
  std::vector<std::string> trusted;
  // Where clients have keys: whether these go on to replicas.
  bool pass_keys = false;

  bool forward_unknown_model = false;  // a model that no replica names: forwarded, else 404

  // What is read of a request.
  std::uint32_t block_bytes = 64;  // text of one prefix block
  std::uint32_t block_ids = 16;    // token ids of one prefix block
  double bytes_per_token = 4;      // for estimates, until learnt
  // Of the chains of token ids (core/token_chain.h): one for all parts of a process.
  std::uint64_t chain_secret = 1;
  // Looked at in this order for the session key.
  std::vector<std::string> session_headers = {"x-session-id", "x-claude-code-session-id",
                                              "x-session-affinity", "session-id", "session_id"};
};

}  // namespace pointsman
