#include "base/utc_time.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;

// By `date -u -d @1769862896`, and for the leap year `date -u -d @1709164800`.
TEST(UtcTime, IsWrittenWithMilliseconds) {
  std::string text;
  append_utc_time(text, std::chrono::system_clock::time_point{milliseconds(1'769'862'896'007)});
  append_utc_time(text, std::chrono::system_clock::time_point{milliseconds(1'709'164'800'990)});
  EXPECT_EQ(text, "2026-01-31T12:34:56.007Z2024-02-29T00:00:00.990Z");
}

TEST(UtcTime, IsReadInTheFormsThatLogsHave) {
  EXPECT_NEAR(read_utc_time("2026-01-31T12:34:56.007Z").value(), 1'769'862'896.007, 1e-5);
  EXPECT_NEAR(read_utc_time("2024-02-29 00:00:00.9900000").value(), 1'709'164'800.99, 1e-5);
  EXPECT_EQ(read_utc_time("2024-02-29 00:00:00+00:00"), 1'709'164'800);
}

TEST(UtcTime, WhatIsNoTimeIsNotRead) {
  for (const char* text :
       {"", "yesterday", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-31T24:00:00Z",
        "2026-01-31T00:60:00Z", "2026-01-31T00:00:xxZ", "2026-01-31T00:00:nanZ",
        "2026/01/31T00:00:00Z", "20x6-01-31T00:00:00Z"}) {
    EXPECT_EQ(read_utc_time(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace pointsman
