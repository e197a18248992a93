#pragma once

#include <cstdint>
#include <string>

#include "replica/kv_publisher.h"
#include "sim/engine_config.h"

namespace pointsman {

struct ReplicaOptions {
  std::string model = "sim";
  sim::EngineConfig engine;
  double speed = 1.0;                     // engine seconds per second, > 0
  std::uint32_t max_model_len = 131'072;  // tokens of prompt and answer; the cache is a limit too
  std::uint32_t max_num_queued_reqs = 0;  // above it, 503; 0: no limit
  std::uint32_t stream_interval = 1;      // tokens in an event after the first, >= 1
  bool request_id_headers = false;        // return x-request-id, as vLLM does where told to
  KvPublisherOptions kv_events;           // no endpoint: none
};

}  // namespace pointsman
