#include "http/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using testing::HasSubstr;

ReplicaUrl parse(std::string_view text) {
  Result<ReplicaUrl> url = parse_replica_url(text);
  EXPECT_TRUE(url.ok()) << text << (url.ok() ? "" : url.error().message);
  return url.ok() ? *url : ReplicaUrl{};
}

// D49
TEST(ReplicaUrl, AddressesAreTakenApart) {
  ReplicaUrl url = parse("http://192.0.2.1:8000");
  EXPECT_EQ(url.host, "192.0.2.1");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.authority, "192.0.2.1:8000");
  EXPECT_FALSE(url.scheme_assumed);

  url = parse("http://[2001:db8::1]:8000");
  EXPECT_EQ(url.host, "2001:db8::1");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.authority, "[2001:db8::1]:8000");

  url = parse("http://[2001:db8::1]");
  EXPECT_EQ(url.host, "2001:db8::1");
  EXPECT_EQ(url.port, 80);
  EXPECT_EQ(url.authority, "[2001:db8::1]");

  url = parse("https://models.test");
  EXPECT_EQ(url.host, "models.test");
  EXPECT_EQ(url.port, 443);
  EXPECT_EQ(url.authority, "models.test");
  EXPECT_TRUE(url.https);

  url = parse("http://models.test:8000/base/");
  EXPECT_EQ(url.host, "models.test");
  EXPECT_EQ(url.port, 8000);
  EXPECT_EQ(url.path_prefix, "/base");

  url = parse("models.test:8000");
  EXPECT_EQ(url.host, "models.test");
  EXPECT_EQ(url.port, 8000);
  EXPECT_TRUE(url.scheme_assumed);

  EXPECT_EQ(authority_of("2001:db8::7", 9000), "[2001:db8::7]:9000");
  EXPECT_EQ(authority_of("models.test", 9000), "models.test:9000");
}

// D49
TEST(ReplicaUrl, Ipv6WithoutBracketsIsAnError) {
  const Result<ReplicaUrl> url = parse_replica_url("http://2001:db8::1:8000");
  ASSERT_FALSE(url.ok());
  EXPECT_THAT(url.error().message, HasSubstr("an address in brackets is needed"));
  EXPECT_FALSE(parse_replica_url("::1").ok());
}

TEST(ReplicaUrl, SpellingsThatMeanTheSameGiveTheSame) {
  EXPECT_EQ(parse("HTTP://Models.Test:80/").host, "models.test");
  EXPECT_EQ(parse("HTTP://Models.Test:80/").authority, "models.test");
  EXPECT_EQ(parse("http://models.test").path_prefix, "");
  EXPECT_EQ(parse("http://models.test//").path_prefix, "");
  EXPECT_EQ(parse("https://models.test:80").authority, "models.test:80");
}

TEST(ReplicaUrl, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"",
                           "http://",
                           "http:///x",
                           "ftp://h",
                           "http://h:",
                           "http://h:0",
                           "http://h:65536",
                           "http://h:80a",
                           "http://h:-1",
                           "http://user:key@h",
                           "http://h?x",
                           "http://h/#f",
                           "http://h/a b",
                           "http://[::1",
                           "http://[::1]8000",
                           "http://[h]:80",
                           "http://[::1%]",
                           "http://h h",
                           "http://h:80:80",
                           "unix:///run/x"}) {
    EXPECT_FALSE(parse_replica_url(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pointsman
