#include "experiments/definitions.h"

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "sim/run_result.h"

namespace pointsman::sim {
namespace {

TEST(Definitions, EveryMeasureHasItsFullName) {
  for (const Measure& measure : measures()) {
    EXPECT_EQ(definition_of(measure.key), measure.name) << measure.key;
  }
}

TEST(Definitions, AKeyIsDefinedOnceAndNoneIsAMeasures) {
  std::set<std::string_view> seen;
  for (const DefinitionGroup& group : definition_groups()) {
    for (const Definition& one : group.definitions) {
      EXPECT_TRUE(seen.insert(one.key).second) << one.key;
      EXPECT_EQ(find_measure(one.key), nullptr) << one.key;
      EXPECT_FALSE(one.meaning.empty()) << one.key;
    }
  }
}

TEST(Definitions, PatternsStandForManyKeysAndWholeKeysComeFirst) {
  EXPECT_EQ(definition_of("p99_gain_load_40_60"), definition_of("p99_gain_load_80_95"));
  EXPECT_NE(definition_of("p99_gain_within_capacity"), definition_of("p99_gain_load_40_60"));
  EXPECT_EQ(definition_of("ttft_p99_s_deviation"), definition_of("goodput_ratio_deviation"));
  EXPECT_NE(definition_of("deviation"), definition_of("ttft_p99_s_deviation"));
  EXPECT_NE(definition_of("share_at_least_2_limit"), definition_of("share_at_least_2"));
  EXPECT_EQ(definition_of("p99_over_"), std::nullopt);
  EXPECT_EQ(definition_of("no_such_key"), std::nullopt);
}

TEST(Definitions, TheDocumentListsThemAsTheyAre) {
  std::ifstream in(POINTSMAN_SOURCE_DIR "/docs/experiments/keys.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), definitions_markdown())
      << "docs/experiments/keys.md is out of date: pointsman simulate keys > "
         "docs/experiments/keys.md";
}

}  // namespace
}  // namespace pointsman::sim
