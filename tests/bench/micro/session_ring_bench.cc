#include <vector>

#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "core/session_ring.h"

namespace pointsman {
namespace {

struct Fleet {
  std::vector<Replica> replicas;
  std::vector<ReplicaIndex> all;
  explicit Fleet(std::size_t count) {
    Rng rng(1);
    for (std::size_t i = 0; i < count; ++i) {
      replicas.push_back({.identity = rng(), .weight = 1.0 + static_cast<double>(i % 3)});
      all.push_back(static_cast<ReplicaIndex>(i));
    }
  }
};

void BM_Rendezvous(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)));
  Rng keys(2);
  std::array<ReplicaIndex, 1> order{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(rendezvous(keys(), fleet.all, fleet.replicas, order));
  }
}
BENCHMARK(BM_Rendezvous)->Arg(8)->Arg(64)->Arg(4'096);

template <typename Table>
void BM_TableHome(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)));
  Rng keys(3);
  TableCache<Table> cache;
  ReplicaIndex home = kNoReplica;
  for (auto _ : state) {
    cache.find(fleet.all, fleet.replicas).walk(keys(), [&home](ReplicaIndex replica) {
      home = replica;
      return true;
    });
    benchmark::DoNotOptimize(home);
  }
}
BENCHMARK(BM_TableHome<HashRing>)->Arg(8)->Arg(64)->Arg(4'096);
BENCHMARK(BM_TableHome<MaglevTable>)->Arg(8)->Arg(64)->Arg(4'096);

template <typename Table>
void BM_TableBuild(benchmark::State& state) {
  const Fleet fleet(static_cast<std::size_t>(state.range(0)));
  Table table;
  for (auto _ : state) table.build(fleet.all, fleet.replicas);
}
BENCHMARK(BM_TableBuild<HashRing>)->Arg(64);
BENCHMARK(BM_TableBuild<MaglevTable>)->Arg(64);

}  // namespace
}  // namespace pointsman
