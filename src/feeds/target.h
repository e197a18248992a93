#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/replica.h"
#include "net/http_client.h"
#include "runtime/fleet.h"

namespace pointsman {

// The replicas to follow, as Fleet::replicas() lists them.
using Targets = std::vector<std::pair<ReplicaIndex, std::shared_ptr<const ReplicaSpec>>>;

// A GET to a replica, below its path prefix and with its key. Port 0: the replica's own.
HttpGetRequest request_to(const ReplicaSpec& spec, std::uint16_t port, std::string_view path);

// The text of an error answer for a person: "503 Loading model". The body's error message is taken
// where it has one, cut to a line.
std::string describe_answer(const HttpGetResult& result);

}  // namespace pointsman
