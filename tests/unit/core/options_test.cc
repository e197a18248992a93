#include "core/options.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

struct Sample {
  double share = 0.5;
  std::uint32_t count = 2;
  bool live = true;

  static constexpr auto fields() {
    return std::tuple{
        Field{"share", &Sample::share, 0.0, 1.0, "a share"},
        Field{"count", &Sample::count, 0, 16, "a count"},
        Field{"live", &Sample::live, "a switch"},
    };
  }
};

std::string error_of(const OptionMap& map) {
  const Result<Sample> result = parse_options<Sample>(map);
  return result ? "" : result.error().message;
}

TEST(Options, WhatIsNotGivenKeepsItsDefault) {
  const Result<Sample> result = parse_options<Sample>({{"count", 7.0}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->share, 0.5);
  EXPECT_EQ(result->count, 7U);
  EXPECT_TRUE(result->live);
}

TEST(Options, TheLastOfAKeyCounts) {
  const Result<Sample> result = parse_options<Sample>({{"count", 7.0}, {"count", 3.0}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->count, 3U);
}

TEST(Options, BothEndsOfTheRangeAreAllowed) {
  EXPECT_EQ(error_of({{"share", 0.0}, {"count", 0.0}}), "");
  EXPECT_EQ(error_of({{"share", 1.0}, {"count", 16.0}}), "");
}

TEST(Options, ErrorsNameTheOptionTheValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of({{"share", 1.01}}), "option 'share' is 1.01, allowed are 0 to 1");
  EXPECT_EQ(error_of({{"count", 17.0}}), "option 'count' is 17, allowed are 0 to 16");
  EXPECT_EQ(error_of({{"count", 2.5}}), "option 'count' takes an integer, not '2.5'");
  EXPECT_EQ(error_of({{"count", true}}), "option 'count' takes an integer, not 'true'");
  EXPECT_EQ(error_of({{"share", "much"}}), "option 'share' takes a number, not 'much'");
  EXPECT_EQ(error_of({{"live", 1.0}}), "option 'live' takes a boolean, not '1'");
}

TEST(Options, NumbersThatFitNoTypeAreRefused) {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), 1e300, -1.0}) {
    EXPECT_NE(error_of({{"count", odd}}), "") << odd;
    EXPECT_NE(error_of({{"share", odd}}), "") << odd;
  }
}

TEST(Options, DescriptionsComeFromTheFields) {
  const std::vector<OptionInfo> infos = describe_options<Sample>();
  ASSERT_EQ(infos.size(), 3U);
  EXPECT_EQ(infos[0].name, "share");
  EXPECT_EQ(infos[0].type, "number");
  EXPECT_EQ(std::get<double>(infos[0].default_value), 0.5);
  EXPECT_EQ(infos[1].type, "integer");
  EXPECT_EQ(infos[1].high, 16);
  EXPECT_EQ(infos[2].type, "boolean");
  EXPECT_EQ(std::get<bool>(infos[2].default_value), true);
  EXPECT_EQ(infos[2].help, "a switch");
}

TEST(Options, NumbersAreWrittenAsPeopleWriteThem) {
  EXPECT_EQ(to_text(0.9), "0.9");
  EXPECT_EQ(to_text(16.0), "16");
  EXPECT_EQ(to_text(32'768.0), "32768");
  EXPECT_EQ(to_text(200'000.0), "200000");
  EXPECT_EQ(to_text(1e9), "1000000000");
  EXPECT_EQ(to_text(-2.5), "-2.5");
  EXPECT_EQ(to_text(0.0), "0");
  EXPECT_EQ(to_text(false), "false");
  EXPECT_EQ(to_text(std::string("x")), "x");
}

}  // namespace
}  // namespace pointsman
