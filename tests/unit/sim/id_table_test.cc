#include "sim/id_table.h"

#include <unordered_map>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace pointsman::sim {
namespace {

TEST(IdTable, AgreesWithAStandardMap) {
  // Counters, hashes, and multiples of a large power of two, which have equal low bits.
  for (const std::uint64_t stride : {1ULL, 0x9e3779b97f4a7c15ULL, 1ULL << 40}) {
    Rng rng(3);
    IdTable table;
    std::unordered_map<std::uint64_t, std::uint32_t> truth;
    for (std::uint32_t round = 0; round < 30'000; ++round) {
      const std::uint64_t id = stride * rng.below(round < 15'000 ? 40 : 4'000);
      const auto found = truth.find(id);
      ASSERT_EQ(table.find(id), found == truth.end() ? IdTable::kNone : found->second);
      if (found == truth.end()) {
        table.insert(id, round);
        truth.emplace(id, round);
      } else {
        table.erase(id);
        truth.erase(found);
      }
    }
    for (const auto& [id, index] : truth) EXPECT_EQ(table.find(id), index);
    table.clear();
    EXPECT_EQ(table.find(0), IdTable::kNone);
  }
}

}  // namespace
}  // namespace pointsman::sim
