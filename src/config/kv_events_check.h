#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/load.h"

namespace pointsman {

// What of the cache events' configuration cannot be, by key: ports that are more than there are, or
// two things' at once; topics of two replicas, or that nobody hears; keys without any effect.
struct KvEventsFault {
  std::string key;  // "kv_events.bind", "replicas[1].kv_topic"
  std::string what;
};
std::vector<KvEventsFault> kv_events_faults(const LoadedConfig& loaded);

// Whether any replica's events are followed.
bool follows_kv_events(const Config& config);

// A ZeroMQ endpoint to listen on: tcp://ADDRESS:PORT, with an IP address, localhost or *, and a
// port from 1 on; or ipc://PATH.
bool is_zmq_listen_endpoint(const std::string& text);

}  // namespace pointsman
