#include "signals/orca.h"

#include <cmath>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

// The header of vLLM 0.32 as captured.
TEST(Orca, ReadsBothFormsAsVllmSendsThem) {
  for (const char* header :
       {"TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0",
        "JSON {\"named_metrics\": {\"num_requests_waiting\": 0.0, \"kv_cache_usage_perc\": "
        "0.0}}"}) {
    const OrcaReading reading = parse_orca(header);
    EXPECT_EQ(reading.kv_usage, 0.0F) << header;
    EXPECT_EQ(reading.waiting, 0.0F) << header;
    EXPECT_TRUE(std::isnan(reading.running)) << header;
    EXPECT_FALSE(reading.empty());
  }
}

TEST(Orca, CaseOfTheFormAndOtherKeysDoNotMatter) {
  const OrcaReading text =
      parse_orca("text cpu_utilization=0.3,named_metrics.kv_cache_usage_perc=0.75");
  EXPECT_EQ(text.kv_usage, 0.75F);
  const OrcaReading json = parse_orca(
      "json {\"cpu_utilization\":0.3,\"utilization\":{\"a\":1},"
      "\"named_metrics\":{\"kv_cache_usage_perc\":7.5e-1,\"num_requests_running\":3}}");
  EXPECT_EQ(json.kv_usage, 0.75F);
  EXPECT_EQ(json.running, 3.0F);
}

TEST(Orca, WhatCannotBeReadSaysNothing) {
  for (const char* header :
       {"", "TEXT", "BIN CgYIARABGAI=", "TEXT named_metrics.kv_cache_usage_perc=much",
        "TEXT named_metrics.kv_cache_usage_perc=0.5x", "TEXT named_metrics.kv_cache_usage_perc=41",
        "TEXT kv_cache_usage_perc=-0.1", "TEXT kv_cache_usage_perc=NaN",
        "JSON {\"kv_cache_usage_perc\": \"0.5\"}", "JSON {\"kv_cache_usage_perc", "JSON {\""}) {
    EXPECT_TRUE(parse_orca(header).empty()) << header;
  }
}

}  // namespace
}  // namespace pointsman
