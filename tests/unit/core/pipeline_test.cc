#include "core/pipeline.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "support/pool_builder.h"

namespace pointsman {
namespace {

using testing_support::PoolBuilder;

struct OnlyEven final : Filter {
  void apply(Context&, Candidates& candidates) override {
    kept = candidates.narrow([](ReplicaIndex replica) { return replica % 2 == 0; });
  }
  bool kept = false;
};

struct FirstThree final : Sampler {
  void sample(Context&, Candidates& candidates) override {
    candidates.assign(candidates.view().first(std::min<std::size_t>(3, candidates.size())));
  }
};

struct ByIndex final : Scorer {
  void score(const Context&, std::span<const ReplicaIndex> candidates,
             std::span<float> out) override {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      out[i] = static_cast<float>(candidates[i]) / 10;
    }
  }
};

struct Even final : Scorer {
  void score(const Context&, std::span<const ReplicaIndex> candidates,
             std::span<float> out) override {
    for (std::size_t i = 0; i < candidates.size(); ++i) out[i] = candidates[i] % 2 == 0 ? 1 : 0;
  }
};

// Hands what it saw to the test.
struct Recorder final : Picker {
  std::size_t pick(Context&, std::span<const ReplicaIndex> given, const Ranking& ranking,
                   std::span<ReplicaIndex> order) override {
    candidates.assign(given.begin(), given.end());
    scores.assign(ranking.scores.begin(), ranking.scores.end());
    order[0] = given.back();
    return 1;
  }
  void picked(const Context&, ReplicaIndex replica) override { last_picked = replica; }
  void feedback(const Feedback& feedback) override { last_feedback = feedback.replica; }
  void forget(ReplicaIndex replica) override { forgotten = replica; }
  std::vector<ReplicaIndex> candidates;
  std::vector<float> scores;
  ReplicaIndex last_picked = kNoReplica;
  ReplicaIndex last_feedback = kNoReplica;
  ReplicaIndex forgotten = kNoReplica;
};

TEST(Pipeline, RunsFilterSamplerScorersAndPickerInTurn) {
  auto recorder = std::make_unique<Recorder>();
  Recorder& seen = *recorder;
  std::vector<std::unique_ptr<Filter>> filters;
  filters.push_back(std::make_unique<OnlyEven>());
  std::vector<Pipeline::Weighted> scorers;
  scorers.push_back({std::make_unique<ByIndex>(), 2.0F});
  scorers.push_back({std::make_unique<Even>(), -1.0F});
  Pipeline pipeline(std::move(filters), std::make_unique<FirstThree>(), std::move(scorers), nullptr,
                    std::move(recorder));
  PoolBuilder pool;
  pool.add_uniform(10);
  EXPECT_EQ(pool.pick(pipeline), "r4");
  EXPECT_EQ(seen.candidates, (std::vector<ReplicaIndex>{0, 2, 4}));
  ASSERT_EQ(seen.scores.size(), 3U);
  EXPECT_NEAR(seen.scores[1], 2.0 * 0.2 - 1.0, 1e-6);
  EXPECT_EQ(seen.last_picked, 4U);
  pipeline.feedback({.replica = 7});
  pipeline.forget(3);
  EXPECT_EQ(seen.last_feedback, 7U);
  EXPECT_EQ(seen.forgotten, 3U);
}

TEST(Pipeline, AFilterThatWouldLeaveNobodyLeavesAll) {
  auto recorder = std::make_unique<Recorder>();
  Recorder& seen = *recorder;
  auto only_even = std::make_unique<OnlyEven>();
  OnlyEven& filter = *only_even;
  std::vector<std::unique_ptr<Filter>> filters;
  filters.push_back(std::move(only_even));
  Pipeline pipeline(std::move(filters), nullptr, {}, nullptr, std::move(recorder));
  PoolBuilder pool;
  pool.add_uniform(6);
  pool.remove("r0");
  pool.remove("r2");
  pool.remove("r4");
  EXPECT_EQ(pool.pick(pipeline), "r5");
  EXPECT_FALSE(filter.kept);
  EXPECT_EQ(seen.candidates, (std::vector<ReplicaIndex>{1, 3, 5}));
}

TEST(Pipeline, OneCandidateIsTakenAndNoneIsNone) {
  Pipeline pipeline({}, nullptr, {}, nullptr, std::make_unique<Recorder>());
  PoolBuilder pool;
  EXPECT_EQ(pool.pick(pipeline), "");
  pool.add("a");
  EXPECT_EQ(pool.pick(pipeline), "a");
  EXPECT_EQ(pool.reason, Reason::kOnlyOne);
}

TEST(Candidates, NarrowingTwiceReadsTheFirstResult) {
  Candidates candidates;
  const std::vector<ReplicaIndex> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  candidates.reset(all);
  candidates.narrow([](ReplicaIndex r) { return r % 2 == 0; });
  candidates.narrow([](ReplicaIndex r) { return r % 3 == 0; });
  candidates.narrow([](ReplicaIndex r) { return r > 0; });
  EXPECT_EQ(std::vector<ReplicaIndex>(candidates.view().begin(), candidates.view().end()),
            (std::vector<ReplicaIndex>{6, 12}));
}

}  // namespace
}  // namespace pointsman
