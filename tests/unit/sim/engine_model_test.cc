#include "sim/engine_model.h"

#include <map>
#include <span>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "support/plain_engine.h"

namespace pointsman::sim {
namespace {

using testing_support::any_of;
using testing_support::plain_engine;

void submit(EngineModel& engine, RequestId id, std::uint32_t prompt, std::uint32_t output,
            std::uint64_t conversation = 0) {
  const ChainRun run{.id = conversation, .blocks = (prompt + output) / kBlockTokens};
  EngineRequest made{.id = id, .prompt_tokens = prompt, .output_tokens = output, .chain = {}};
  if (conversation != 0 && run.blocks > 0) made.chain = std::span(&run, 1);
  engine.submit(made);
}

// Seconds at which each token of each request came out, and the end of the run.
struct Timeline {
  std::map<RequestId, std::vector<double>> tokens;
  std::map<RequestId, double> finished;
  double end = 0;
};

Timeline drain(EngineModel& engine, double start = 0) {
  Timeline run;
  run.end = start;
  while (const std::optional<EngineTime> took = engine.begin_step()) {
    run.end += seconds_of(*took);
    for (const EngineEvent& event : engine.finish_step()) {
      if (event.kind == EngineEventKind::kToken) {
        run.tokens[event.request].push_back(run.end);
      } else {
        run.finished[event.request] = run.end;
      }
    }
  }
  return run;
}

TEST(StepCost, FollowsItsFormula) {
  EngineConfig config = plain_engine();
  config.attention_ratio = 0.01;
  const StepCost cost(config);
  const StepWork small{.tokens = 4, .decode_context = 1'000, .sequences = 4, .prefill_pairs = 0};
  EXPECT_DOUBLE_EQ(seconds_of(cost.of(small)), 0.001 + 0.010 + 0.001 + 0.0004);
  const StepWork large{.tokens = 100, .decode_context = 0, .sequences = 1, .prefill_pairs = 5'050};
  EXPECT_DOUBLE_EQ(seconds_of(cost.of(large)), 0.001 + 0.050 + 0.0001 + 0.0005 * 0.01 * 5'050);
  EXPECT_EQ(StepCost(config, 3.0).of(small), 3 * cost.of(small));
  EXPECT_EQ(cost.growth(7), std::chrono::microseconds(7));
}

TEST(EngineModel, IdleWithoutRequests) {
  EngineModel engine(plain_engine());
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.begin_step(), std::nullopt);
}

TEST(EngineModel, OneRequestTakesTheSumOfItsSteps) {
  EngineModel engine(plain_engine());
  // 250 tokens in chunks of 100, 100 and 50; then two decodes over 250 and 251 tokens of context.
  submit(engine, 1, 250, 3);
  const Timeline run = drain(engine);
  const double prefill = 2 * (0.001 + 0.050 + 0.0001) + (0.001 + 0.025 + 0.0001);
  const double second = 0.001 + 0.010 + 250e-6 + 0.0001;
  const double third = 0.001 + 0.010 + 251e-6 + 0.0001;
  ASSERT_EQ(run.tokens.at(1).size(), 3U);
  EXPECT_NEAR(run.tokens.at(1)[0], prefill, 1e-8);
  EXPECT_NEAR(run.tokens.at(1)[1], prefill + second, 1e-8);
  EXPECT_NEAR(run.tokens.at(1)[2], prefill + second + third, 1e-8);
  EXPECT_EQ(run.finished.at(1), run.tokens.at(1)[2]);
  EXPECT_EQ(engine.state().steps, 5U);
  EXPECT_EQ(engine.state().generated_tokens, 3U);
}

TEST(EngineModel, TwoRequestsShareTheirSteps) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 10, 2);
  submit(engine, 2, 20, 2);
  const Timeline run = drain(engine);
  const double first = 0.001 + 30 * 0.0005 + 0.0002;
  const double second = 0.001 + 0.010 + (10 + 20) * 1e-6 + 0.0002;
  EXPECT_NEAR(run.tokens.at(1)[0], first, 1e-8);
  EXPECT_NEAR(run.tokens.at(2)[0], first, 1e-8);
  EXPECT_NEAR(run.tokens.at(2)[1], first + second, 1e-8);
}

TEST(EngineModel, AttentionOfAPrefillChunkCountsQueryTimesContext) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 150, 1);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.step_work().prefill_pairs, 100U * 101 / 2);
  engine.finish_step();
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.step_work().prefill_pairs, 50U * 100 + 50 * 51 / 2);
}

TEST(EngineModel, ALongPromptBlocksAdmissionUntilItIsThrough) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 250, 5);
  submit(engine, 2, 10, 1);
  const Timeline run = drain(engine);
  // The short prompt fits beside the last chunk of the long one, not earlier.
  EXPECT_EQ(run.tokens.at(2)[0], run.tokens.at(1)[0]);
}

TEST(EngineModel, DecodesComeBeforePrefills) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 10, 10);
  ASSERT_TRUE(engine.begin_step());
  engine.finish_step();
  submit(engine, 2, 200, 1);
  ASSERT_TRUE(engine.begin_step());
  // One token for the decode, and a chunk of what is left of the budget.
  EXPECT_EQ(engine.step_work().tokens, 100U);
  EXPECT_EQ(engine.step_work().decode_context, 10U);
  EXPECT_EQ(engine.step_work().prefill_pairs, 99U * 100 / 2);
}

TEST(EngineModel, NoMoreThanMaxNumSeqsRun) {
  EngineConfig config = plain_engine();
  config.max_num_seqs = 2;
  EngineModel engine(config);
  for (RequestId id = 1; id <= 3; ++id) submit(engine, id, 10, 2);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.state().running, 2U);
  EXPECT_EQ(engine.state().waiting, 1U);
  engine.finish_step();
  const Timeline run = drain(engine);
  EXPECT_GT(run.tokens.at(3)[0], run.finished.at(1));
}

TEST(EngineModel, ASecondTurnComputesOnlyWhatIsNew) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 64, 33, /*conversation=*/5);
  drain(engine);
  // 64 prompt tokens and 32 of 33 answer tokens have KV entries: six full blocks.
  submit(engine, 2, 120, 1, /*conversation=*/5);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.step_work().tokens, 120U - 96);
  const std::vector<EngineEvent> events = engine.finish_step();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].cached, 96U);
  EXPECT_EQ(engine.state().prefix_queries, 64U + 120);
  EXPECT_EQ(engine.state().prefix_hits, 96U);
}

TEST(EngineModel, APromptOfWholeBlocksIsNeverAFullHit) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 80, 1, /*conversation=*/5);
  drain(engine);
  submit(engine, 2, 80, 1, /*conversation=*/5);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.step_work().tokens, 16U);  // (80 - 1) / 16 = 4 blocks of 5 are reused
}

TEST(EngineModel, TwoEqualPromptsInOneStepShareBlocks) {
  EngineModel engine(plain_engine());
  submit(engine, 1, 40, 2, /*conversation=*/5);
  submit(engine, 2, 40, 2, /*conversation=*/5);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.step_work().tokens, 40U + 8);
  EXPECT_EQ(engine.kv().referenced(), 3U + 1);
}

TEST(EngineModel, PreemptsTheYoungestAndComputesItAgain) {
  EngineConfig config = plain_engine();
  config.blocks = 4;
  EngineModel engine(config);
  // Two blocks each. Request 1 needs a third at its 33rd token, and there is none.
  submit(engine, 1, 31, 4);
  submit(engine, 2, 31, 2 + 16);
  ASSERT_TRUE(engine.begin_step());
  engine.finish_step();  // both have their first token, context 31
  ASSERT_TRUE(engine.begin_step());
  engine.finish_step();  // token 32 is computed, both blocks are full
  EXPECT_EQ(engine.state().preemptions, 0U);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_EQ(engine.state().preemptions, 1U);
  EXPECT_EQ(engine.state().running, 1U);
  EXPECT_EQ(engine.state().waiting, 1U);
  EXPECT_EQ(engine.step_work().tokens, 1U);  // no admission in that step
  engine.finish_step();
  const Timeline run = drain(engine, 1.0);
  EXPECT_EQ(run.tokens.at(2).size(), 16U);  // goes on where it was, nothing is said twice
  EXPECT_GT(run.tokens.at(2)[0], run.finished.at(1));
  EXPECT_EQ(engine.kv().referenced(), 0U);
  // The lookup of a request that comes back is not counted again.
  EXPECT_EQ(engine.state().prefix_queries, 62U);
}

TEST(EngineModel, AdmissionWaitsForBlocksInOrder) {
  EngineConfig config = plain_engine();
  config.blocks = 4;
  EngineModel engine(config);
  submit(engine, 1, 33, 2);
  submit(engine, 2, 33, 1);
  submit(engine, 3, 1, 1);
  ASSERT_TRUE(engine.begin_step());
  // Request 3 would fit, but does not overtake.
  EXPECT_EQ(engine.state().running, 1U);
  EXPECT_EQ(engine.state().waiting, 2U);
}

TEST(EngineModel, CancelFreesQueuedAndRunningRequests) {
  EngineConfig config = plain_engine();
  config.max_num_seqs = 1;
  EngineModel engine(config);
  submit(engine, 1, 40, 9);
  submit(engine, 2, 40, 9);
  ASSERT_TRUE(engine.begin_step());
  EXPECT_TRUE(engine.cancel(1));
  EXPECT_TRUE(engine.cancel(2));
  EXPECT_FALSE(engine.cancel(2));
  EXPECT_TRUE(engine.finish_step().empty());
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.kv().referenced(), 0U);
}

TEST(EngineModel, FitsUpToTheWholeCache) {
  EngineConfig config = plain_engine();
  config.blocks = 4;
  EngineModel engine(config);
  EXPECT_TRUE(engine.fits(63, 1));
  EXPECT_FALSE(engine.fits(64, 1));
  submit(engine, 1, 60, 4);
  EXPECT_EQ(drain(engine).tokens.at(1).size(), 4U);
}

// A crowded engine under random submissions and cancellations.
using Log = std::vector<std::tuple<int, RequestId, std::uint32_t, std::int64_t>>;

Log random_run(std::uint64_t seed, EngineState& end) {
  Rng rng(seed);
  EngineConfig config = plain_engine();
  config.blocks = 60;
  EngineModel engine(config);
  struct Size {
    std::uint32_t prompt = 0;
    std::uint32_t output = 0;
  };
  std::map<RequestId, Size> open;
  std::map<RequestId, std::uint32_t> seen;
  Log log;
  RequestId next = 1;
  EngineTime now{};
  for (int round = 0; round < 4'000; ++round) {
    if (round < 3'000 && rng.below(3) == 0) {
      const Size size{static_cast<std::uint32_t>(1 + rng.below(200)),
                      static_cast<std::uint32_t>(1 + rng.below(60))};
      open.emplace(next, size);
      submit(engine, next++, size.prompt, size.output, 1 + rng.below(9));
    }
    if (!open.empty() && rng.below(20) == 0) {
      const RequestId id = any_of(open, rng);
      EXPECT_TRUE(engine.cancel(id));
      open.erase(id);
    }
    const std::optional<EngineTime> took = engine.begin_step();
    if (!took) continue;
    EXPECT_LE(engine.step_work().tokens, config.max_num_batched_tokens);
    now += *took;
    for (const EngineEvent& event : engine.finish_step()) {
      const Size& size = open.at(event.request);
      EXPECT_LE(event.cached, (size.prompt - 1) / kBlockTokens * kBlockTokens);
      log.emplace_back(static_cast<int>(event.kind), event.request, event.token, now.count());
      if (event.kind == EngineEventKind::kToken) {
        EXPECT_EQ(event.token, seen[event.request]++);
      } else {
        EXPECT_EQ(seen[event.request], size.output);
        open.erase(event.request);
      }
    }
  }
  while (engine.begin_step()) engine.finish_step();
  EXPECT_EQ(engine.kv().referenced(), 0U);
  end = engine.state();
  return log;
}

TEST(EngineModel, RandomRunsKeepTheInvariantsAndRepeat) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EngineState first;
    EngineState second;
    EXPECT_EQ(random_run(seed, first), random_run(seed, second));
    EXPECT_GT(first.preemptions, 0U);
    EXPECT_GT(first.prefix_hits, 0U);
    EXPECT_LE(first.prefix_hits, first.prefix_queries);
    EXPECT_EQ(first.running + first.waiting, 0U);
  }
}

TEST(EnginePresets, AreFoundByName) {
  for (const char* name : {"8b_h100", "8b_a100", "70b_h100x4", "70b_a100x4", "ref70", "set_a"}) {
    ASSERT_NE(find_engine_preset(name), nullptr) << name;
  }
  EXPECT_EQ(find_engine_preset("ref70")->config.blocks, 40'000U);
  EXPECT_EQ(find_engine_preset("8B"), nullptr);
}

}  // namespace
}  // namespace pointsman::sim
