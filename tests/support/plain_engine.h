#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "base/rng.h"
#include "sim/engine_config.h"
#include "sim/engine_model.h"

namespace pointsman::testing_support {

// Round figures, so that durations can be summed by hand.
inline sim::EngineConfig plain_engine(double token_s = 0.0005) {
  sim::EngineConfig config;
  config.blocks = 1'000;
  config.max_num_batched_tokens = 100;
  config.max_num_seqs = 8;
  config.step_s = 0.001;
  config.weights_s = 0.010;
  config.token_s = token_s;
  config.context_s = 1e-6;
  config.sequence_s = 0.0001;
  config.attention_ratio = 0.0;
  return config;
}

// One of the requests under way, each as likely; there must be one.
template <typename Value>
sim::RequestId any_of(const std::map<sim::RequestId, Value>& open, Rng& rng) {
  return std::next(open.begin(), static_cast<long>(rng.below(open.size())))->first;
}

}  // namespace pointsman::testing_support
