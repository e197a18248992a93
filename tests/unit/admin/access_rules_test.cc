#include "admin/access_rules.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(AccessRules, OnlyAHostThatNoPageCanForgeIsTrusted) {
  const std::vector<std::string> hosts = {"router.internal"};
  for (const char* host : {"127.0.0.1", "127.0.0.1:9090", "10.1.2.3:80", "[::1]", "[::1]:9090",
                           "localhost", "LocalHost:9090", "router.internal:9090"}) {
    EXPECT_TRUE(is_trusted_host(host, hosts)) << host;
  }
  for (const char* host :
       {"", "evil.example", "evil.example:9090", "127.0.0.1.evil.example", "localhost.evil.example",
        "[evil]:1", "[::1", "[::1]evil", "::1", "router.internal.evil.example"}) {
    EXPECT_FALSE(is_trusted_host(host, hosts)) << host;
  }
}

TEST(AccessRules, AKeyIsABearerTokenInFull) {
  EXPECT_TRUE(bears_key("Bearer k-123", "k-123"));
  EXPECT_TRUE(bears_key("bearer  k-123 ", "k-123"));
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer k-12", "Bearer k-1234", "k-123",
                             "Basic k-123", "Bearer K-123"}) {
    EXPECT_FALSE(bears_key(header, "k-123")) << header;
  }
}

TEST(AccessRules, EqualMeansEqualInLengthToo) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", ""));
  EXPECT_FALSE(equal_in_constant_time("", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcabc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
}

TEST(AccessRules, FormsThatAPageMaySendWithoutAskingAreNoJson) {
  EXPECT_TRUE(is_json("application/json"));
  EXPECT_TRUE(is_json("Application/JSON; charset=utf-8"));
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
        "application/jsonx", "text/plain; a=application/json"}) {
    EXPECT_FALSE(is_json(type)) << type;
  }
}

}  // namespace
}  // namespace pointsman
