#include "access/address_range.h"

#include <string>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "access/connection_counts.h"

namespace pointsman {
namespace {

AddressBytes bytes(const std::string& text) {
  AddressBytes address{};
  const std::string v6 = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  EXPECT_EQ(::inet_pton(AF_INET6, v6.c_str(), address.data()), 1) << text;
  return address;
}

bool within(const std::string& range, const std::string& address) {
  const auto parsed = AddressRange::parse(range);
  EXPECT_TRUE(parsed) << range;
  return parsed && parsed->contains(bytes(address));
}

TEST(AddressRange, HoldsItsFirstAndLastAddressAndNoNeighbour) {
  EXPECT_TRUE(within("10.0.0.0/8", "10.0.0.0"));
  EXPECT_TRUE(within("10.0.0.0/8", "10.255.255.255"));
  EXPECT_FALSE(within("10.0.0.0/8", "9.255.255.255"));
  EXPECT_FALSE(within("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(within("192.168.4.0/23", "192.168.5.255"));
  EXPECT_FALSE(within("192.168.4.0/23", "192.168.6.0"));
  EXPECT_TRUE(within("127.0.0.1", "127.0.0.1"));
  EXPECT_FALSE(within("127.0.0.1", "127.0.0.2"));
  EXPECT_TRUE(within("127.0.0.1/32", "127.0.0.1"));
  EXPECT_TRUE(within("fd00::/8", "fdff::1"));
  EXPECT_FALSE(within("fd00::/8", "fe00::1"));
  EXPECT_TRUE(within("2001:db8:0:8000::/49", "2001:db8:0:ffff::"));
  EXPECT_FALSE(within("2001:db8:0:8000::/49", "2001:db8:0:7fff::"));
  EXPECT_TRUE(within("::1", "::1"));
}

TEST(AddressRange, AllOfOneFamilyIsNotAllOfTheOther) {
  EXPECT_TRUE(within("0.0.0.0/0", "203.0.113.7"));
  EXPECT_FALSE(within("0.0.0.0/0", "2001:db8::1"));
  EXPECT_TRUE(within("::/0", "2001:db8::1"));
}

// A listener on :: shows IPv4 clients so.
TEST(AddressRange, KnowsIPv4AddressesInTheirIPv6Form) {
  EXPECT_TRUE(within("10.0.0.0/8", "::ffff:10.1.2.3"));
}

TEST(AddressRange, RefusesWhatIsNoNetwork) {
  for (const char* text :
       {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/8x", "fd00::/129", "host",
        "10.0.0.0/-1", "10.0.0.1/8", "fd00::1/64", " 10.0.0.0/8"}) {
    EXPECT_FALSE(AddressRange::parse(text)) << text;
  }
}

using Verdict = ConnectionCounts::Verdict;

TEST(ConnectionCounts, HasRoomAgainWhenAPlaceIsGivenBack) {
  const AddressRanges nobody;
  ConnectionCounts counts({.all = 2, .per_client = 0}, nobody);
  ConnectionPlace one;
  ConnectionPlace two;
  ConnectionPlace three;
  EXPECT_EQ(counts.enter(bytes("10.0.0.1"), one), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("10.0.0.2"), two), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("10.0.0.3"), three), Verdict::kTooMany);
  EXPECT_EQ(counts.open(), 2U);
  one.give_back();
  one.give_back();
  EXPECT_EQ(counts.open(), 1U);
  EXPECT_EQ(counts.enter(bytes("10.0.0.3"), three), Verdict::kLetIn);
  two = ConnectionPlace();
  three = std::move(one);
  EXPECT_EQ(counts.open(), 0U);
}

TEST(ConnectionCounts, CountsByAddressAndByIPv6Network) {
  const AddressRanges trusted({"10.9.0.0/16"});
  ConnectionCounts counts({.all = 0, .per_client = 1}, trusted);
  ConnectionPlace places[8];
  EXPECT_EQ(counts.enter(bytes("10.0.0.1"), places[0]), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("10.0.0.1"), places[1]), Verdict::kTooManyOfClient);
  EXPECT_EQ(counts.enter(bytes("10.0.0.2"), places[1]), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("2001:db8:0:1::1"), places[2]), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("2001:db8:0:1:8000::2"), places[3]), Verdict::kTooManyOfClient);
  EXPECT_EQ(counts.enter(bytes("2001:db8:0:2::1"), places[3]), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("10.9.1.1"), places[4]), Verdict::kLetIn);
  EXPECT_EQ(counts.enter(bytes("10.9.1.1"), places[5]), Verdict::kLetIn);
  EXPECT_EQ(counts.open(), 6U);
  places[0].give_back();
  EXPECT_EQ(counts.enter(bytes("10.0.0.1"), places[6]), Verdict::kLetIn);
}

}  // namespace
}  // namespace pointsman
