#include "core/session_ring.h"

#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "base/rng.h"

namespace pointsman {
namespace {

struct Fleet {
  std::vector<Replica> replicas;
  std::vector<ReplicaIndex> all;

  explicit Fleet(const std::vector<double>& weights) {
    Rng rng(17);
    for (const double weight : weights) {
      all.push_back(static_cast<ReplicaIndex>(replicas.size()));
      replicas.push_back({.identity = rng(), .weight = weight, .usable = true});
    }
  }
  std::vector<ReplicaIndex> without(ReplicaIndex gone) const {
    std::vector<ReplicaIndex> rest;
    for (const ReplicaIndex replica : all) {
      if (replica != gone) rest.push_back(replica);
    }
    return rest;
  }
};

// The three ways to find a key's home, so that each property is asked of each.
struct Rendezvous {
  static constexpr double kShareTolerance = 0.05;
  static constexpr double kExtraMoves = 0;  // keys of replicas that stay
  static ReplicaIndex home(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                           const Fleet& fleet) {
    ReplicaIndex best = kNoReplica;
    rendezvous(key, candidates, fleet.replicas, {&best, 1});
    return best;
  }
};

template <typename Table>
ReplicaIndex home_in(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                     const Fleet& fleet) {
  static TableCache<Table> cache;
  ReplicaIndex home = kNoReplica;
  cache.find(candidates, fleet.replicas).walk(key, [&](ReplicaIndex replica) {
    home = replica;
    return true;
  });
  return home;
}

struct Ring {
  // A hundred points each: the share's standard deviation is about a tenth (1 / sqrt(points)).
  static constexpr double kShareTolerance = 0.35;
  // Envoy gives every replica more points when one leaves (103 → 114), which move a few keys.
  static constexpr double kExtraMoves = 0.12;
  static ReplicaIndex home(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                           const Fleet& fleet) {
    return home_in<HashRing>(key, candidates, fleet);
  }
};

struct Maglev {
  static constexpr double kShareTolerance = 0.03;
  // Eisenbud et al., section 5.3: a few per cent of other replicas' entries change.
  static constexpr double kExtraMoves = 0.05;
  static ReplicaIndex home(std::uint64_t key, std::span<const ReplicaIndex> candidates,
                           const Fleet& fleet) {
    return home_in<MaglevTable>(key, candidates, fleet);
  }
};

template <typename Method>
class ConsistentHash : public testing::Test {};
using Methods = testing::Types<Rendezvous, Ring, Maglev>;
TYPED_TEST_SUITE(ConsistentHash, Methods);

constexpr int kKeys = 50'000;

TYPED_TEST(ConsistentHash, ShareIsProportionalToWeight) {
  const Fleet fleet({1, 1, 2, 0.5, 3, 1.5, 1});
  const double total = 10;
  std::vector<double> counts(fleet.all.size());
  Rng keys(1);
  for (int i = 0; i < kKeys; ++i) counts[TypeParam::home(keys(), fleet.all, fleet)] += 1;
  for (const ReplicaIndex replica : fleet.all) {
    const double expected = kKeys * fleet.replicas[replica].weight / total;
    EXPECT_NEAR(counts[replica] / expected, 1, TypeParam::kShareTolerance) << "replica " << replica;
  }
}

// D44: one of ten leaves and returns; about a tenth of the sessions move, and come back.
TYPED_TEST(ConsistentHash, KeysOfTheLeaverMoveAndComeBack) {
  const Fleet fleet(std::vector<double>(10, 1.0));
  const ReplicaIndex gone = 4;
  const std::vector<ReplicaIndex> rest = fleet.without(gone);
  int of_the_leaver = 0;
  int of_others = 0;
  std::vector<int> heirs(10);
  Rng keys(2);
  for (int i = 0; i < kKeys; ++i) {
    const std::uint64_t key = keys();
    const ReplicaIndex before = TypeParam::home(key, fleet.all, fleet);
    const ReplicaIndex meanwhile = TypeParam::home(key, rest, fleet);
    ASSERT_NE(meanwhile, gone);
    ASSERT_EQ(TypeParam::home(key, fleet.all, fleet), before);
    if (before == gone) {
      ++of_the_leaver;
      ++heirs[meanwhile];
    } else if (before != meanwhile) {
      ++of_others;
    }
  }
  constexpr double kTenth = kKeys / 10.0;
  EXPECT_NEAR(of_the_leaver, kTenth, kTenth * (TypeParam::kShareTolerance + 0.02));
  EXPECT_LE(of_others, kKeys * TypeParam::kExtraMoves);
  // The leaver's keys are spread over all that stay.
  for (const ReplicaIndex replica : rest) EXPECT_GT(heirs[replica], 0) << "replica " << replica;
}

TYPED_TEST(ConsistentHash, OrderAndIndicesOfTheListDoNotMatter) {
  const Fleet fleet({1, 2, 1, 0.5, 1, 1, 4, 1});
  const std::size_t n = fleet.all.size();
  Fleet turned = fleet;
  std::reverse(turned.replicas.begin(), turned.replicas.end());
  std::vector<ReplicaIndex> shuffled = {3, 1, 7, 0, 2, 6, 5, 4};
  Rng keys(3);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t key = keys();
    const ReplicaIndex home = TypeParam::home(key, fleet.all, fleet);
    EXPECT_EQ(TypeParam::home(key, shuffled, fleet), home);
    EXPECT_EQ(n - 1 - TypeParam::home(key, shuffled, turned), home);
  }
}

TYPED_TEST(ConsistentHash, OneCandidateIsEveryKeysHome) {
  const Fleet fleet({1, 1e-6, 1e6});
  Rng keys(4);
  for (const ReplicaIndex only : fleet.all) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(TypeParam::home(keys(), {&only, 1}, fleet), only);
  }
}

TYPED_TEST(ConsistentHash, NoCandidateHasNoHome) {
  const Fleet fleet({1});
  EXPECT_EQ(TypeParam::home(5, {}, fleet), kNoReplica);
}

TYPED_TEST(ConsistentHash, RaisingAWeightOnlyDrawsKeys) {
  const Fleet fleet(std::vector<double>(6, 1.0));
  Fleet raised = fleet;
  raised.replicas[2].weight = 2;
  Rng keys(6);
  int strays = 0;
  for (int i = 0; i < kKeys; ++i) {
    const std::uint64_t key = keys();
    const ReplicaIndex before = TypeParam::home(key, fleet.all, fleet);
    const ReplicaIndex after = TypeParam::home(key, fleet.all, raised);
    if (before != after && after != 2) ++strays;
  }
  EXPECT_LE(strays, kKeys * TypeParam::kExtraMoves);
}

TEST(Rendezvous, OrderListsTheHomesThatFollowEachOther) {
  const Fleet fleet({1, 2, 1, 3, 0.5, 1, 1, 1});
  Rng keys(7);
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t key = keys();
    std::array<ReplicaIndex, 4> order{};
    ASSERT_EQ(rendezvous(key, fleet.all, fleet.replicas, order), 4U);
    std::vector<ReplicaIndex> left = fleet.all;
    for (const ReplicaIndex next : order) {
      EXPECT_EQ(Rendezvous::home(key, left, fleet), next);
      std::erase(left, next);
    }
  }
}

TEST(Rendezvous, ListsNoMoreThanThereAre) {
  const Fleet fleet({1, 1});
  std::array<ReplicaIndex, 4> order{};
  EXPECT_EQ(rendezvous(1, fleet.all, fleet.replicas, order), 2U);
  EXPECT_EQ(rendezvous(1, {}, fleet.replicas, order), 0U);
}

// Envoy's documentation of the ring: the lightest host has a whole number of points, the others in
// proportion, at least the minimum in all.
TEST(HashRing, SizeFollowsEnvoy) {
  const auto size = [](const std::vector<double>& weights) {
    const Fleet fleet(weights);
    HashRing ring;
    ring.build(fleet.all, fleet.replicas);
    return ring.size();
  };
  EXPECT_EQ(size({1}), 1'024U);
  EXPECT_EQ(size({1, 1}), 1'024U);
  EXPECT_EQ(size({1, 1, 1}), 3U * 342U);                     // ceil(1024 / 3) each
  EXPECT_EQ(size({1, 2, 3}), 6U * 171U);                     // ceil(1024 / 6), twice, thrice
  EXPECT_EQ(size(std::vector<double>(2'000, 1.0)), 2'000U);  // one each
  EXPECT_EQ(size({1, 1e9}), HashRing::kMaxPoints);
}

// The algorithm from its description, without the code's arithmetic: a key belongs to the replica
// of the first point at or after it.
TEST(HashRing, HomeIsTheFirstPointAtOrAfterTheKey) {
  const Fleet fleet({1, 1, 2});
  std::map<std::uint64_t, ReplicaIndex> points;
  for (const ReplicaIndex replica : fleet.all) {
    const int count = replica == 2 ? 512 : 256;
    for (int i = 0; i < count; ++i) {
      const std::string name =
          std::to_string(fleet.replicas[replica].identity) + "_" + std::to_string(i);
      points[XXH64(name.data(), name.size(), 0)] = replica;
    }
  }
  Rng keys(8);
  for (int i = 0; i < 5'000; ++i) {
    const std::uint64_t key = keys();
    auto at = points.lower_bound(key);
    if (at == points.end()) at = points.begin();
    ASSERT_EQ(Ring::home(key, fleet.all, fleet), at->second);
  }
  EXPECT_EQ(Ring::home(points.begin()->first, fleet.all, fleet), points.begin()->second);
  EXPECT_EQ(Ring::home(points.rbegin()->first, fleet.all, fleet), points.rbegin()->second);
  EXPECT_EQ(Ring::home(points.rbegin()->first + 1, fleet.all, fleet), points.begin()->second);
}

// The next replica on the ring is the one that would be home if the first had no points.
TEST(HashRing, WalkContinuesWithTheNextDistinctReplica) {
  const Fleet fleet({1, 1, 1, 1});  // 256 points each; the walk is over the same ring
  std::map<std::uint64_t, ReplicaIndex> points;
  for (const ReplicaIndex replica : fleet.all) {
    for (int i = 0; i < 256; ++i) {
      const std::string name =
          std::to_string(fleet.replicas[replica].identity) + "_" + std::to_string(i);
      points[XXH64(name.data(), name.size(), 0)] = replica;
    }
  }
  HashRing ring;
  ring.build(fleet.all, fleet.replicas);
  Rng keys(9);
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t key = keys();
    std::vector<ReplicaIndex> expected;
    auto at = points.lower_bound(key);
    while (expected.size() < fleet.all.size()) {
      if (at == points.end()) at = points.begin();
      if (std::find(expected.begin(), expected.end(), at->second) == expected.end()) {
        expected.push_back(at->second);
      }
      ++at;
    }
    std::vector<ReplicaIndex> met;
    ring.walk(key, [&](ReplicaIndex replica) {
      met.push_back(replica);
      return false;
    });
    ASSERT_EQ(met, expected);
  }
}

template <typename Table>
void expect_walk_meets_each_once() {
  const Fleet fleet(std::vector<double>(50, 1.0));
  Table table;
  table.build(fleet.all, fleet.replicas);
  Rng keys(10);
  for (int i = 0; i < 200; ++i) {
    std::vector<ReplicaIndex> met;
    table.walk(keys(), [&](ReplicaIndex replica) {
      met.push_back(replica);
      return false;
    });
    std::sort(met.begin(), met.end());
    ASSERT_EQ(met, fleet.all);
  }
}

TEST(HashRing, WalkMeetsEachReplicaOnce) {
  expect_walk_meets_each_once<HashRing>();
}

TEST(MaglevTable, WalkMeetsEachReplicaOnce) {
  expect_walk_meets_each_once<MaglevTable>();
}

// A replica too light for a point is simply not met: the walk ends.
TEST(HashRing, WalkEndsThoughAReplicaHasNoPoint) {
  const Fleet fleet({1e-9, 1, 1, 1e9});
  HashRing ring;
  ring.build(fleet.all, fleet.replicas);
  int met = 0;
  ring.walk(1, [&](ReplicaIndex) { return ++met > 100; });
  EXPECT_LE(met, 4);
  EXPECT_GE(met, 1);
}

// Eisenbud et al.: with equal weights, entries differ by at most one in number.
TEST(MaglevTable, EqualWeightsGetEqualEntries) {
  const Fleet fleet(std::vector<double>(9, 1.0));
  MaglevTable table;
  table.build(fleet.all, fleet.replicas);
  ASSERT_EQ(table.size(), MaglevTable::kEntries);
  std::vector<int> entries(9);
  for (std::uint64_t key = 0; key < MaglevTable::kEntries; ++key) {
    table.walk(key, [&](ReplicaIndex replica) {
      ++entries[replica];
      return true;
    });
  }
  const auto [low, high] = std::minmax_element(entries.begin(), entries.end());
  EXPECT_LE(*high - *low, 1);
}

TEST(MaglevTable, TurnsFollowWeight) {
  const Fleet fleet({1, 2, 4});
  MaglevTable table;
  table.build(fleet.all, fleet.replicas);
  std::vector<double> entries(3);
  for (std::uint64_t key = 0; key < MaglevTable::kEntries; ++key) {
    table.walk(key, [&](ReplicaIndex replica) {
      entries[replica] += 1;
      return true;
    });
  }
  const double part = MaglevTable::kEntries / 7.0;
  EXPECT_NEAR(entries[0], part, 2);
  EXPECT_NEAR(entries[1], 2 * part, 2);
  EXPECT_NEAR(entries[2], 4 * part, 2);
}

TEST(TableCache, BuildsOnlyWhenTheCandidatesChange) {
  Fleet fleet({1, 1, 1, 1});
  TableCache<HashRing> cache;
  const std::vector<ReplicaIndex> some = {0, 2};
  const std::vector<ReplicaIndex> turned = {2, 0};
  for (int i = 0; i < 10; ++i) {
    cache.find(fleet.all, fleet.replicas);
    cache.find(some, fleet.replicas);
    cache.find(turned, fleet.replicas);
  }
  EXPECT_EQ(cache.built(), 2U);
  fleet.replicas[0].weight = 2;
  cache.find(some, fleet.replicas);
  EXPECT_EQ(cache.built(), 3U);
  fleet.replicas[0].identity += 1;
  cache.find(some, fleet.replicas);
  EXPECT_EQ(cache.built(), 4U);
}

TEST(TableCache, KeepsTheListsUsedLast) {
  const Fleet fleet(std::vector<double>(TableCache<HashRing>::kTables + 1, 1.0));
  TableCache<HashRing> cache;
  for (const ReplicaIndex gone : fleet.all) {
    cache.find(fleet.all, fleet.replicas);
    cache.find(fleet.without(gone), fleet.replicas);
  }
  const std::uint64_t built = cache.built();
  cache.find(fleet.all, fleet.replicas);
  EXPECT_EQ(cache.built(), built);
  cache.find(fleet.without(0), fleet.replicas);
  EXPECT_EQ(cache.built(), built + 1);
}

}  // namespace
}  // namespace pointsman
