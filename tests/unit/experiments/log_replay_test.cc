#include "experiments/log_replay.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sim/virtual_engine.h"

namespace pointsman::sim {
namespace {

EngineConfig engine() {
  EngineConfig config;
  config.blocks = 1'000'000;  // they never run out
  config.max_num_batched_tokens = 600;
  config.max_num_seqs = 12;
  return config;
}

// Requests that crowd, some with a prompt of several steps.
std::vector<MeasuredRequest> crowd(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<MeasuredRequest> requests;
  double at = 5;
  for (int i = 0; i < 300; ++i) {
    at += 0.06 * rng.unit();
    MeasuredRequest request;
    request.replica = rng.below(2);
    request.start = at;
    request.prompt_tokens = 1 + rng.below(rng.below(8) == 0 ? 4'000 : 400);
    request.output_tokens = 1 + rng.below(60);
    requests.push_back(request);
  }
  return requests;
}

TEST(LogReplay, AgreesWithTheEngineModelWhereNothingIsCached) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::vector<MeasuredRequest> requests = crowd(seed);
    const std::vector<ReplayedRequest> replayed = replay_log(requests, engine(), 0.25);
    ASSERT_EQ(replayed.size(), requests.size());
    int waited = 0;
    for (std::uint32_t replica = 0; replica < 2; ++replica) {
      VirtualEngine model(engine());
      const auto check = [&](std::span<const EngineReport> reports) {
        for (const EngineReport& report : reports) {
          const ReplayedRequest& got = replayed[report.request];
          const double time = to_seconds(report.at.time_since_epoch());
          const bool is_first = report.kind == EngineReportKind::kFirstToken;
          EXPECT_NEAR(is_first ? got.first_token : got.end, time, 1e-6) << report.request;
        }
      };
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const MeasuredRequest& request = requests[i];
        if (request.replica != replica) continue;
        const TimePoint at{from_seconds(request.start + 0.25)};
        check(model.advance(at));
        if (model.state(at).waiting > 0) ++waited;
        model.submit({.id = i,
                      .prompt_tokens = request.prompt_tokens,
                      .output_tokens = request.output_tokens,
                      .chain = {}},
                     at);
      }
      check(model.advance(TimePoint{std::chrono::hours(1)}));
    }
    EXPECT_GT(waited, 20) << "else nothing was crowded";
  }
}

TEST(LogReplay, WhatTheLogFoundCachedIsNotComputed) {
  MeasuredRequest whole;
  whole.start = 1;
  whole.prompt_tokens = 500;
  whole.output_tokens = 3;
  MeasuredRequest cached = whole;
  cached.replica = 1;
  cached.cached_tokens = 400;
  const EngineConfig config = engine();
  const auto replayed = replay_log(std::vector{whole, cached}, config, 0);
  const double others = config.step_s + config.sequence_s;
  const double pair = config.token_s * config.attention_ratio;
  EXPECT_NEAR(replayed[0].first_token - 1, others + config.token_s * 500 + pair * 125'250, 1e-6);
  EXPECT_NEAR(replayed[1].first_token - 1, others + config.weights_s + pair * (40'000 + 5'050),
              1e-6)
      << "a hundred tokens take less than the weights";
  // The cached tokens are read again by each decode all the same: of 500 and 501 tokens.
  EXPECT_NEAR(replayed[1].end - replayed[1].first_token,
              2 * (others + config.weights_s) + config.context_s * (500 + 501), 1e-6);
}

}  // namespace
}  // namespace pointsman::sim
