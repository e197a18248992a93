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
                           "unix:///run/x",
                           "5",
                           "true",
                           "models.test",
                           "5:80",
                           "http://1.2.3.4.5:1",
                           "http://1.2.3:1",
                           "http://1.2.3.256:1",
                           "http://host.7:1",
                           "http://-x:1",
                           "http://x-:1",
                           "http://a..b:1",
                           "http://.a:1",
                           "http://[:::1]:1",
                           "http://[1::2::3]",
                           "http://[1:2:3:4:5:6:7]",
                           "http://[1:2:3:4:5:6:7:8:9]",
                           "http://[1:2:3:4:5:6:7::8]",
                           "http://[12345::1]",
                           "http://[1:2:3:4:5:6:7:]",
                           "http://[::1.2.3.256]",
                           "http://[::1.2.3.4:5]",
                           "http://10.0.0.08:1",
                           "http://h/a/../b",
                           "http://h/..",
                           "http://h/./b",
                           "http://h/%2E%2e/b",
                           "http://h/.%2e"}) {
    EXPECT_FALSE(parse_replica_url(text).ok()) << text;
  }
}

TEST(ReplicaUrl, TakesWhatOnlyLooksStrange) {
  for (const char* text :
       {"http://host_1:80", "http://host.test.:80", "http://7up.test", "http://1.2.3.4.test",
        "http://10.0.0.1", "http://[fe80::1%eth0]:80", "http://[::ffff:10.0.0.1]:80",
        "http://h/...", "http://h/a..b", "http://[::]", "http://[1::]", "http://[1:2:3:4:5:6:7:8]",
        "http://[1:2:3:4:5:6:1.2.3.4]", "http://[1:2::7:8]:1", "http://h/.well-known",
        "localhost:8000", "a--b:1"}) {
    EXPECT_TRUE(parse_replica_url(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pointsman
