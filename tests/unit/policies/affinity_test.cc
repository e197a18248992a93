// session_affinity, ring_hash, maglev, prefix_aware.

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "policies/prefix_table.h"
#include "support/policy.h"
#include "support/pool_builder.h"

namespace pointsman {
namespace {

using testing_support::make_policy;
using testing_support::PoolBuilder;
using testing_support::ReplicaState;

std::uint64_t key(std::uint64_t session) {
  return Rng(session)();
}

std::map<std::uint64_t, std::string> homes(PoolBuilder& pool, Pipeline& policy, int sessions) {
  std::map<std::uint64_t, std::string> found;
  for (int i = 1; i <= sessions; ++i) {
    pool.features.session_key = key(static_cast<std::uint64_t>(i));
    found[pool.features.session_key] = pool.pick(policy);
  }
  return found;
}

// Case D44: ten servers, one leaves and later returns.
TEST(SessionAffinity, D44_OnlyTheLeaversSessionsMoveAndTheyComeBack) {
  PoolBuilder pool;
  pool.add_uniform(10);
  const auto policy = make_policy("session_affinity");
  const auto before = homes(pool, *policy, 2'000);
  pool.remove("r3");
  int moved = 0;
  for (const auto& [session, home] : homes(pool, *policy, 2'000)) {
    if (before.at(session) == "r3") {
      EXPECT_NE(home, "r3");
      ++moved;
    } else {
      EXPECT_EQ(home, before.at(session));
    }
  }
  EXPECT_NEAR(moved, 200, 60);
  pool.restore("r3");
  EXPECT_EQ(homes(pool, *policy, 2'000), before);
}

TEST(SessionAffinity, TheLeaversSessionsSpreadOverAllOthers) {
  PoolBuilder pool;
  pool.add_uniform(10);
  const auto policy = make_policy("session_affinity");
  const auto before = homes(pool, *policy, 2'000);
  pool.remove("r3");
  std::set<std::string> taken_in;
  for (const auto& [session, home] : homes(pool, *policy, 2'000)) {
    if (before.at(session) == "r3") taken_in.insert(home);
  }
  EXPECT_EQ(taken_in.size(), 9U);
}

TEST(SessionAffinity, WeightsMakeShares) {
  PoolBuilder pool;
  pool.add("one", {.weight = 1});
  pool.add("three", {.weight = 3});
  const auto policy = make_policy("session_affinity");
  int three = 0;
  for (const auto& [session, home] : homes(pool, *policy, 4'000)) three += home == "three" ? 1 : 0;
  EXPECT_NEAR(three, 3'000, 150);
}

TEST(SessionAffinity, ASessionStaysAtABusyHome) {
  PoolBuilder pool;
  pool.add_uniform(4, {.kv = 0.1, .waiting = 0, .capacity = 1'000'000});
  const auto policy = make_policy("session_affinity");
  pool.features.session_key = key(5);
  const std::string home = pool.pick(*policy);
  EXPECT_EQ(pool.reason, Reason::kSession);
  pool.report(pool.index(home), 0.85, 10.0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pool.pick(*policy), home);
}

// The valve: each kind of saturation opens it, and the session comes home afterwards.
TEST(SessionAffinity, TheValveOpensWhileTheHomeIsSaturated) {
  PoolBuilder pool;
  pool.add_uniform(4, {.kv = 0.1, .waiting = 0});
  const auto policy = make_policy("session_affinity");
  pool.features.session_key = key(5);
  const std::string home = pool.pick(*policy);
  const ReplicaIndex index = pool.index(home);
  for (const auto& [kv, waiting] : {std::pair{0.95, 0.0}, {0.2, 16.0}}) {
    pool.report(index, kv, waiting);
    EXPECT_NE(pool.pick(*policy), home);
    EXPECT_EQ(pool.reason, Reason::kValve);
    pool.report(index, 0.1, 0.0);
    EXPECT_EQ(pool.pick(*policy), home);
    EXPECT_EQ(pool.reason, Reason::kSession);
  }
  // Stuck behind a long prefill: low KV use, nothing reported waiting.
  pool.book(index, 40'000);
  EXPECT_NE(pool.pick(*policy), home);
  EXPECT_EQ(pool.reason, Reason::kValve);
  pool.finish_all();
  EXPECT_EQ(pool.pick(*policy), home);
}

TEST(SessionAffinity, TheValveChoosesByCacheRoom) {
  PoolBuilder pool;
  pool.add_uniform(3, {.kv = 0.5, .waiting = 0});
  const auto policy = make_policy("session_affinity");
  pool.features.session_key = key(5);
  const std::string home = pool.pick(*policy);
  pool.report(pool.index(home), 0.95, 0.0);
  std::string emptier;
  for (ReplicaIndex i = 0; i < 3 && emptier.empty(); ++i) {
    if (pool.name(i) != home) emptier = pool.name(i);
  }
  pool.report(pool.index(emptier), 0.1, 0.0);
  EXPECT_EQ(pool.shares(*policy, 50).at(emptier), 50);
}

TEST(SessionAffinity, IfAllAreSaturatedAllAreComparedAndItIsCounted) {
  PoolBuilder pool;
  pool.add_uniform(8, {.kv = 0.98});
  pool.report(5, 0.91, {});
  const auto policy = make_policy("session_affinity");
  for (std::uint64_t i = 1; i < 30; ++i) {
    pool.features.session_key = key(i);
    EXPECT_EQ(pool.pick(*policy), "r5");
    EXPECT_EQ(pool.reason, Reason::kAllSaturated);
  }
}

TEST(SessionAffinity, WithoutASessionThePromptsBeginningIsTheKey) {
  PoolBuilder pool;
  pool.add_uniform(8);
  const auto policy = make_policy("session_affinity");
  const std::vector<BlockHash> prompt = {key(1), key(2), key(3)};
  pool.features.blocks = prompt;
  const std::string home = pool.pick(*policy);
  const std::vector<BlockHash> longer = {key(1), key(8)};
  pool.features.blocks = longer;
  EXPECT_EQ(pool.pick(*policy), home);
  pool.features.blocks = {};
  EXPECT_GT(pool.shares(*policy, 200).size(), 4U) << "with nothing to go by, anywhere";
}

class BoundedHashes : public testing::TestWithParam<const char*> {};

TEST_P(BoundedHashes, ASessionHasOneHome) {
  PoolBuilder pool;
  pool.add_uniform(8);
  const auto policy = make_policy(GetParam());
  const auto once = homes(pool, *policy, 500);
  EXPECT_EQ(homes(pool, *policy, 500), once);
  std::map<std::string, int> counts;
  for (const auto& [session, home] : once) ++counts[home];
  EXPECT_EQ(counts.size(), 8U);
}

TEST_P(BoundedHashes, EveryRouterNamesTheSameHomes) {
  PoolBuilder pool;
  pool.add_uniform(8);
  PoolBuilder other;  // lists the same replicas the other way round
  for (int i = 7; i >= 0; --i) other.add("r" + std::to_string(i));
  EXPECT_EQ(homes(pool, *make_policy(GetParam()), 500),
            homes(other, *make_policy(GetParam()), 500));
}

// Nobody gets more than ceil(1.25 * (in flight + 1) * share), even if all ask for one key.
TEST_P(BoundedHashes, LoadIsBoundedEvenForOneKey) {
  PoolBuilder pool;
  pool.add("a", {.weight = 1});
  pool.add("b", {.weight = 1});
  pool.add("c", {.weight = 2});
  pool.features.session_key = key(77);
  const auto policy = make_policy(GetParam());
  std::map<std::string, int> counts;
  for (int in_flight = 0; in_flight < 200; ++in_flight) {
    const std::string chosen = pool.pick(*policy);
    const double share = chosen == "c" ? 0.5 : 0.25;
    EXPECT_LE(++counts[chosen], std::ceil(1.25 * (in_flight + 1) * share));
    pool.book(pool.index(chosen), 10);
  }
  EXPECT_EQ(counts.size(), 3U);
}

TEST_P(BoundedHashes, BalanceZeroMeansNoBound) {
  PoolBuilder pool;
  pool.add_uniform(3);
  pool.features.session_key = key(77);
  const auto policy = make_policy(GetParam(), {{"balance", 0.0}});
  const std::string home = pool.pick(*policy);
  EXPECT_EQ(pool.burst(*policy, 50).at(home), 50);
}

TEST_P(BoundedHashes, OverTheBoundTheSameNextOneEachTime) {
  PoolBuilder pool;
  pool.add_uniform(8);
  pool.features.session_key = key(77);
  const auto policy = make_policy(GetParam());
  const std::vector<ReplicaIndex> order = pool.order(*policy);
  EXPECT_EQ(pool.reason, Reason::kSession);
  ASSERT_EQ(order.size(), Decision::kMaxReplicas);
  for (int i = 0; i < 5; ++i) pool.book(order[0], 10);
  EXPECT_EQ(pool.order(*policy)[0], order[1]);
  EXPECT_EQ(pool.reason, Reason::kValve);
}

TEST_P(BoundedHashes, LoadOfWhatCannotBeChosenDoesNotRaiseTheBound) {
  PoolBuilder pool;
  pool.add_uniform(2);
  pool.add("gone", {.decoding = 1'000});
  pool.remove("gone");
  pool.features.session_key = key(77);
  const auto policy = make_policy(GetParam());
  for (const auto& [name, count] : pool.burst(*policy, 40)) EXPECT_GE(count, 14) << name;
}

INSTANTIATE_TEST_SUITE_P(Presets, BoundedHashes, testing::Values("ring_hash", "maglev"),
                         [](const auto& one) { return std::string(one.param); });

std::vector<BlockHash> prompt(std::uint64_t stem, std::size_t blocks) {
  Rng rng(stem);
  std::vector<BlockHash> chain(blocks);
  for (BlockHash& hash : chain) hash = rng();
  return chain;
}

class PrefixAware : public testing::Test {
 protected:
  std::string ask(const std::vector<BlockHash>& chain) {
    pool.features.blocks = chain;
    pool.features.prompt_tokens = static_cast<std::uint32_t>(chain.size()) * 16 + 4;
    return pool.pick(*policy);
  }
  PoolBuilder pool;
  std::unique_ptr<Pipeline> policy = make_policy("prefix_aware");
};

TEST_F(PrefixAware, PromptsWithTheSameFirst512TokensGoToTheSameReplica) {
  pool.add_uniform(16);
  std::vector<BlockHash> first = prompt(1, 60);
  const std::string holder = ask(first);
  EXPECT_EQ(pool.reason, Reason::kPolicy);
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::vector<BlockHash> other = prompt(1, 32);  // 32 blocks of 16 tokens: 512
    const std::vector<BlockHash> tail = prompt(100 + i, 20);
    other.insert(other.end(), tail.begin(), tail.end());
    EXPECT_EQ(ask(other), holder);
    EXPECT_EQ(pool.reason, Reason::kPrefix);
  }
  std::vector<BlockHash> early_difference = prompt(1, 31);
  early_difference.push_back(key(999));
  (void)ask(early_difference);
  EXPECT_EQ(pool.reason, Reason::kPolicy) << "they part within the first 512 tokens";
}

TEST_F(PrefixAware, AShortPromptIsFoundByALongerOne) {
  pool.add_uniform(16);
  const std::string holder = ask(prompt(1, 3));
  EXPECT_EQ(ask(prompt(1, 9)), holder);
  EXPECT_EQ(ask(prompt(1, 80)), holder);
  EXPECT_EQ(ask(prompt(1, 2)), ask(prompt(1, 2)));
}

TEST_F(PrefixAware, AmongHoldersTheOneWithMoreCacheRoom) {
  pool.add_uniform(4, {.kv = 0.5, .waiting = 0});
  const std::string first = ask(prompt(1, 40));
  pool.report(pool.index(first), 0.95, 0.0);
  const std::string second = ask(prompt(1, 40));
  EXPECT_NE(second, first);
  EXPECT_EQ(pool.reason, Reason::kValve) << "all holders saturated";
  pool.report(pool.index(first), 0.3, 0.0);
  EXPECT_EQ(ask(prompt(1, 40)), first);
  pool.report(pool.index(first), 0.7, 0.0);
  EXPECT_EQ(ask(prompt(1, 40)), second) << "the valve's choice is remembered";
}

TEST_F(PrefixAware, AHolderThatLeftOrRestartedIsNotNamed) {
  pool.add_uniform(4);
  const std::string holder = ask(prompt(1, 40));
  pool.remove(holder);
  EXPECT_NE(ask(prompt(1, 40)), holder);
  pool.restore(holder);
  const std::string forgotten = ask(prompt(2, 40));
  policy->forget(pool.index(forgotten));
  (void)ask(prompt(2, 40));
  EXPECT_EQ(pool.reason, Reason::kPolicy);
}

// Case D31: a small cache is not a small load.
TEST_F(PrefixAware, D31_APromptNobodyHoldsGoesByLoad) {
  pool.add("a", {.decoding = 40});
  pool.add("b");
  for (std::uint64_t i = 0; i < 30; ++i) {
    pool.features.blocks = {};
    EXPECT_EQ(ask(prompt(i + 50, 30)), "b");
  }
}

TEST(LoadPolicies, D31_APromptNobodyHoldsGoesByLoad) {
  for (const char* preset : {"least_connections", "least_response_time", "least_kv",
                             "global_least_kv", "weighted", "least_work"}) {
    PoolBuilder pool;
    pool.add("a", {.decoding = 40});
    pool.add("b");
    pool.features.prompt_tokens = 400;
    const std::vector<BlockHash> chain = prompt(1, 25);
    pool.features.blocks = chain;
    EXPECT_EQ(pool.pick(*make_policy(preset)), "b") << preset;
  }
}

TEST(PrefixTable, ForgetsTheLeastRecentlyUsedKey) {
  PrefixTable table(100);
  std::array<ReplicaIndex, PrefixTable::kHolders> holders{};
  for (std::uint64_t i = 0; i < 150; ++i) {
    table.remember(key(i), 4, static_cast<ReplicaIndex>(i % 7));
    table.remember(key(0), 4, 0);  // always in use
  }
  EXPECT_EQ(table.size(), 100U);
  EXPECT_EQ(table.find(key(0), holders), 1U);
  EXPECT_EQ(table.find(key(50), holders), 0U);
  EXPECT_EQ(table.find(key(51), holders), 1U);
  EXPECT_EQ(holders[0], 51U % 7);
}

TEST(PrefixTable, HoldersComeMostRecentFirstAndAreBounded) {
  PrefixTable table(10);
  std::array<ReplicaIndex, PrefixTable::kHolders> holders{};
  for (ReplicaIndex replica = 0; replica < 12; ++replica) table.remember(7, 4, replica);
  table.remember(7, 4, 6);
  ASSERT_EQ(table.find(7, holders), PrefixTable::kHolders);
  EXPECT_EQ(holders, (std::array<ReplicaIndex, 8>{6, 11, 10, 9, 8, 7, 5, 4}));
  table.forget(11);
  ASSERT_EQ(table.find(7, holders), PrefixTable::kHolders - 1);
  EXPECT_EQ(holders[1], 10U);
  table.remember(7, 4, 11);
  EXPECT_EQ(table.find(7, holders), PrefixTable::kHolders);
  EXPECT_EQ(holders[0], 11U) << "sent there again after the restart";
}

// Against a plain list, with keys that collide in the table.
TEST(PrefixTable, EqualsANaiveTable) {
  constexpr std::size_t kCapacity = 32;
  PrefixTable table(kCapacity);
  std::vector<std::pair<BlockHash, std::vector<ReplicaIndex>>> naive;  // most recent first
  Rng rng(3);
  for (int step = 0; step < 20'000; ++step) {
    const BlockHash hash = rng.below(90) << (rng.below(2) == 0 ? 0 : 6);
    if (rng.below(3) == 0) {
      const auto replica = static_cast<ReplicaIndex>(rng.below(20));
      table.remember(hash, static_cast<std::uint32_t>(1 + hash % 5), replica);
      std::vector<ReplicaIndex> holders;
      const auto known = std::find_if(naive.begin(), naive.end(),
                                      [&](const auto& entry) { return entry.first == hash; });
      if (known != naive.end()) {
        holders = known->second;
        naive.erase(known);
      }
      std::erase(holders, replica);
      holders.insert(holders.begin(), replica);
      if (holders.size() > PrefixTable::kHolders) holders.pop_back();
      naive.insert(naive.begin(), {hash, holders});
      if (naive.size() > kCapacity) naive.pop_back();
    } else {
      std::array<ReplicaIndex, PrefixTable::kHolders> found{};
      const std::size_t count = table.find(hash, found);
      const auto known = std::find_if(naive.begin(), naive.end(),
                                      [&](const auto& entry) { return entry.first == hash; });
      const std::vector<ReplicaIndex> expected =
          known == naive.end() ? std::vector<ReplicaIndex>{} : known->second;
      ASSERT_EQ(std::vector<ReplicaIndex>(found.begin(), found.begin() + count), expected)
          << "step " << step;
    }
  }
}

}  // namespace
}  // namespace pointsman
