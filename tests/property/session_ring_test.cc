#include "core/session_ring.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman {
namespace {

// Replicas of random weight that come and go.
struct Fleet {
  Rng rng;
  std::vector<Replica> replicas;
  std::vector<ReplicaIndex> present;
  std::vector<ReplicaIndex> absent;

  explicit Fleet(std::uint64_t seed) : rng(seed) {
    const std::uint64_t count = 3 + rng.below(30);
    for (std::uint64_t i = 0; i < count; ++i) {
      replicas.push_back({.identity = rng(), .weight = 0.25 + 3.75 * rng.unit(), .usable = true});
      present.push_back(static_cast<ReplicaIndex>(i));
    }
  }

  // One leaves or returns; which it was.
  ReplicaIndex change() {
    const bool leaves = absent.empty() || (present.size() > 2 && rng.below(2) == 0);
    std::vector<ReplicaIndex>& from = leaves ? present : absent;
    const auto at = from.begin() + static_cast<std::ptrdiff_t>(rng.below(from.size()));
    const ReplicaIndex moved = *at;
    from.erase(at);
    (leaves ? absent : present).push_back(moved);
    return moved;
  }

  [[nodiscard]] double weight() const {
    double sum = 0;
    for (const ReplicaIndex replica : present) sum += replicas[replica].weight;
    return sum;
  }
};

class SessionRingProperty : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, SessionRingProperty, testing::Range<std::uint64_t>(1, 9));

template <typename Home>
void expect_few_moves(std::uint64_t seed, double allowed_strays, Home&& home) {
  constexpr std::size_t kKeys = 4'000;
  Fleet fleet(seed);
  std::vector<std::uint64_t> keys(kKeys);
  for (std::uint64_t& key : keys) key = fleet.rng();
  std::vector<ReplicaIndex> homes(kKeys);
  for (std::size_t i = 0; i < kKeys; ++i) homes[i] = home(keys[i], fleet);
  for (int step = 0; step < 20; ++step) {
    const ReplicaIndex changed = fleet.change();
    std::size_t strays = 0;
    for (std::size_t i = 0; i < kKeys; ++i) {
      const ReplicaIndex now = home(keys[i], fleet);
      if (now != homes[i] && now != changed && homes[i] != changed) ++strays;
      homes[i] = now;
    }
    EXPECT_LE(static_cast<double>(strays), allowed_strays * kKeys) << "step " << step;
  }
}

TEST_P(SessionRingProperty, RendezvousMovesOnlyTheLeaversAndTheComersKeys) {
  expect_few_moves(GetParam(), 0, [](std::uint64_t key, const Fleet& fleet) {
    ReplicaIndex home = kNoReplica;
    rendezvous(key, fleet.present, fleet.replicas, {&home, 1});
    return home;
  });
}

template <typename Table>
ReplicaIndex first(TableCache<Table>& tables, std::uint64_t key, const Fleet& fleet) {
  ReplicaIndex home = kNoReplica;
  tables.find(fleet.present, fleet.replicas).walk(key, [&](ReplicaIndex replica) {
    home = replica;
    return true;
  });
  return home;
}

// A change of the total weight, or of who is lightest, gives every replica more or fewer points by
// Envoy's rule, which moves some keys of those that stay.
TEST_P(SessionRingProperty, RingMovesFewOtherKeys) {
  TableCache<HashRing> tables;
  expect_few_moves(GetParam(), 0.2, [&tables](std::uint64_t key, const Fleet& fleet) {
    return first(tables, key, fleet);
  });
}

TEST_P(SessionRingProperty, MaglevMovesFewOtherKeys) {
  TableCache<MaglevTable> tables;
  expect_few_moves(GetParam(), 0.03, [&tables](std::uint64_t key, const Fleet& fleet) {
    return first(tables, key, fleet);
  });
}

// Consistent hashing with bounded loads: whoever follows the walk to the first replica below
// ceil(1.25 * (in flight + 1) * share) always finds one, however skewed the keys are, and nobody
// ever exceeds the bound.
template <typename Table>
void expect_bounded_load(std::uint64_t seed) {
  Fleet fleet(seed);
  TableCache<Table> tables;
  std::vector<int> in_flight(fleet.replicas.size());
  const double weight = fleet.weight();
  for (int total = 0; total < 1'000; ++total) {
    const std::uint64_t key = 0x9e3779b97f4a7c15ULL * (1 + fleet.rng.below(4));  // four keys
    ReplicaIndex chosen = kNoReplica;
    tables.find(fleet.present, fleet.replicas).walk(key, [&](ReplicaIndex replica) {
      const double share = fleet.replicas[replica].weight / weight;
      if (in_flight[replica] + 1 > std::ceil(1.25 * (total + 1) * share)) return false;
      chosen = replica;
      return true;
    });
    ASSERT_NE(chosen, kNoReplica);
    ++in_flight[chosen];
  }
}

TEST_P(SessionRingProperty, BoundedLoadOnTheRingAlwaysFindsRoom) {
  expect_bounded_load<HashRing>(GetParam());
}

TEST_P(SessionRingProperty, BoundedLoadInTheTableAlwaysFindsRoom) {
  expect_bounded_load<MaglevTable>(GetParam());
}

}  // namespace
}  // namespace pointsman
