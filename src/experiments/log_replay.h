#pragma once

#include <span>
#include <vector>

#include "experiments/measured_requests.h"
#include "sim/engine_config.h"

namespace pointsman::sim {

// When a request of a log has its first token and its last by an engine's constants, seconds by the
// log's clock.
struct ReplayedRequest {
  double first_token = 0;
  double end = 0;
};

// Runs the requests of a log again: each comes at its measured start and `overhead_s`, at its
// replica, finds as much in the cache as it did, and all that is there shares the steps by the
// rules of EngineModel. Blocks never run out, since the log does not say how many there are. What
// the log left out is missing here too.
[[nodiscard]] std::vector<ReplayedRequest> replay_log(std::span<const MeasuredRequest> requests,
                                                      const EngineConfig& engine,
                                                      double overhead_s);

}  // namespace pointsman::sim
