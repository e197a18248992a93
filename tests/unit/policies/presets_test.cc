// What the presets are without any option: the figures of the contract, written down once more.

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/session_ring.h"
#include "policies/register.h"

namespace pointsman {
namespace {

TEST(Presets, HaveTheStatedDefaults) {
  struct Row {
    const char* preset;
    const char* option;
    OptionValue value;
  };
  const Row rows[] = {
      {"least_connections", "choices", 0.0},
      {"least_response_time", "choices", 0.0},
      {"least_response_time", "decay_s", 10.0},
      {"ring_hash", "balance", 1.25},
      {"maglev", "balance", 1.25},
      {"least_kv", "choices", 2.0},
      {"least_kv", "live", true},
      {"least_kv", "tolerance", 0.02},
      {"global_least_kv", "choices", 0.0},
      {"prefix_aware", "tokens", 512.0},
      {"prefix_aware", "keys", 100'000.0},
      {"prefix_aware", "choices", 2.0},
      {"session_affinity", "choices", 2.0},
      {"least_work", "choices", 0.0},
      {"least_work", "keep_holder", true},
      {"least_work", "base_tokens", 400.0},
      {"least_work", "private_weight", 3.0},
      {"least_work", "shared_weight", 1.0},
      {"least_work", "decode_tokens", 64.0},
      {"least_work", "kv_weight", 200'000.0},
      {"least_work", "kv_knee", 0.95},
      {"least_work", "unknown_kv", 0.5},
      {"least_work", "speed_gain", 0.03},
      {"least_work", "speed_dead_band", 0.3},
  };
  const Registry registry = make_registry();
  for (const Row& row : rows) {
    const PresetInfo* preset = registry.preset(row.preset);
    ASSERT_NE(preset, nullptr) << row.preset;
    bool found = false;
    for (const OptionInfo& option : preset->options) {
      if (option.name != row.option) continue;
      found = true;
      EXPECT_EQ(option.default_value, row.value) << row.preset << ' ' << row.option;
    }
    EXPECT_TRUE(found) << row.preset << ' ' << row.option;
  }
  EXPECT_EQ(HashRing::kMinPoints, 1'024U);
  EXPECT_EQ(MaglevTable::kEntries, 65'537U);
}

TEST(Presets, AreTheStatedTwelve) {
  const Registry registry = make_registry();
  std::vector<std::string> names;
  for (const PresetInfo& preset : registry.presets()) names.push_back(preset.name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"global_least_kv", "least_connections", "least_kv",
                                             "least_response_time", "least_work", "maglev",
                                             "prefix_aware", "random", "ring_hash", "round_robin",
                                             "session_affinity", "weighted"}));
}

}  // namespace
}  // namespace pointsman
