#include "config/units.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(Units, DurationsCarryTheirUnit) {
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("5s"), seconds(5));
  EXPECT_EQ(parse_duration("1.5m"), seconds(90));
  EXPECT_EQ(parse_duration("2h"), hours(2));
  EXPECT_EQ(parse_duration("10us"), std::chrono::microseconds(10));
  EXPECT_EQ(parse_duration("0"), Duration{0});
  for (const char* text : {"", "5", "s", "-5s", "5 s", "5S", "5sec", "1.2.3s", "1e3s", "nan",
                           "infs", "99999999999999999h", "5s "}) {
    EXPECT_FALSE(parse_duration(text)) << text;
  }
}

TEST(Units, DurationsAreShownInTheLargestUnitThatFits) {
  EXPECT_EQ(duration_text(Duration{0}), "0");
  EXPECT_EQ(duration_text(seconds(5)), "5s");
  EXPECT_EQ(duration_text(seconds(90)), "90s");
  EXPECT_EQ(duration_text(minutes(10)), "10m");
  EXPECT_EQ(duration_text(hours(24)), "24h");
  EXPECT_EQ(duration_text(milliseconds(1500)), "1500ms");
}

TEST(Units, BytesMayCarryABinaryUnit) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("1000"), 1000U);
  EXPECT_EQ(parse_bytes("64KiB"), 65'536U);
  EXPECT_EQ(parse_bytes("16MiB"), 16'777'216U);
  EXPECT_EQ(parse_bytes("1GiB"), 1'073'741'824U);
  for (const char* text :
       {"", "-1", "1.5MiB", "1MB", "1 MiB", "99999999999999999999", "18446744073709551615GiB"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
  EXPECT_EQ(bytes_text(16'777'216), "16MiB");
  EXPECT_EQ(bytes_text(1000), "1000");
  EXPECT_EQ(bytes_text(0), "0");
}

TEST(Units, NumbersAreWholeTexts) {
  EXPECT_EQ(parse_number("0.25"), 0.25);
  EXPECT_EQ(parse_number("-3"), -3.0);
  EXPECT_EQ(parse_number("1e3"), 1000.0);
  for (const char* text : {"", " 1", "1 ", "1x", "nan", "inf", "0x10", "1e999"}) {
    EXPECT_FALSE(parse_number(text)) << text;
  }
}

TEST(Units, ListenAddressesAreAnAddressAndAPort) {
  for (const char* text :
       {"0.0.0.0:8080", "127.0.0.1:0", "[::1]:9090", "[::]:1", "localhost:80", "10.1.2.3:65535"}) {
    EXPECT_TRUE(is_listen_address(text)) << text;
  }
  for (const char* text : {"", ":", ":8080", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                           "127.0.0.1:-1", "::1:80", "[::1]", "[127.0.0.1]:80", "example.org:80",
                           "127.0.0.1:80x", "http://127.0.0.1:80", "[]:80"}) {
    EXPECT_FALSE(is_listen_address(text)) << text;
  }
}

TEST(Units, LoopbackIsWhatOnlyThisMachineReaches) {
  for (const char* text : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(is_loopback_address(text)) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "off"}) {
    EXPECT_FALSE(is_loopback_address(text)) << text;
  }
}

TEST(Units, ListenersCollideOnTheSamePortOfTheSameAddress) {
  const std::pair<const char*, const char*> collide[] = {
      {"127.0.0.1:80", "127.0.0.1:80"}, {"localhost:80", "127.0.0.1:80"},
      {"0.0.0.0:80", "127.0.0.1:80"},   {"[::]:80", "10.0.0.1:80"},
      {"[::]:80", "[::1]:80"},          {"[::1]:80", "[0:0::1]:80"}};
  for (const auto& [a, b] : collide) {
    EXPECT_TRUE(listen_addresses_collide(a, b)) << a << " " << b;
    EXPECT_TRUE(listen_addresses_collide(b, a)) << b << " " << a;
  }
  const std::pair<const char*, const char*> agree[] = {
      {"127.0.0.1:80", "127.0.0.1:81"}, {"127.0.0.1:80", "127.0.0.2:80"},
      {"127.0.0.1:0", "127.0.0.1:0"},   {"0.0.0.0:80", "[::1]:80"},
      {"off", "127.0.0.1:80"},          {"off", "off"}};
  for (const auto& [a, b] : agree) {
    EXPECT_FALSE(listen_addresses_collide(a, b)) << a << " " << b;
    EXPECT_FALSE(listen_addresses_collide(b, a)) << b << " " << a;
  }
}

TEST(Units, WhatIsNearlyRightGetsAHint) {
  EXPECT_EQ(duration_hint("5"), "5s");
  EXPECT_EQ(duration_hint("0.5"), "0.5s");
  EXPECT_EQ(duration_hint("5 minutes"), "");
  EXPECT_EQ(duration_hint("-5"), "");
  EXPECT_EQ(bytes_hint("16MB"), "16MiB");
  EXPECT_EQ(bytes_hint("16 mb"), "16MiB");
  EXPECT_EQ(bytes_hint("1g"), "1GiB");
  EXPECT_EQ(bytes_hint("64kib"), "64KiB");
  EXPECT_EQ(bytes_hint("MB"), "");
  EXPECT_EQ(bytes_hint("16X"), "");
}

}  // namespace
}  // namespace pointsman
