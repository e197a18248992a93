#include "http/path.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(RoutingPath, PlainPathsAreTheirOwnDecoding) {
  std::string scratch;
  for (const char* path :
       {"/", "/v1/chat/completions", "/v1/models/", "/a.b/..c/...", "/v1/~x+y"}) {
    EXPECT_EQ(routing_path(path, scratch), path);
  }
}

TEST(RoutingPath, EscapesAreDecodedOnce) {
  std::string scratch;
  EXPECT_EQ(routing_path("/v1/%6coad_lora_adapter", scratch), "/v1/load_lora_adapter");
  EXPECT_EQ(routing_path("/v1/models/org%20m%C3%A9", scratch), "/v1/models/org m\xc3\xa9");
  EXPECT_EQ(routing_path("/v1/%2541", scratch), "/v1/%41");
}

TEST(RoutingPath, RefusesPathsThatCanBeReadInTwoWays) {
  std::string scratch;
  for (const char* path : {"",
                           "*",
                           "v1",
                           "//",
                           "//v1",
                           "/v1//models",
                           "/v1/./models",
                           "/v1/../metrics",
                           "/..",
                           "/.",
                           "/v1/..",
                           "/v1/%2e%2E/metrics",
                           "/v1/%2e",
                           "/v1%2Fmodels",
                           "/v1/%2f..",
                           "/v1/%00",
                           "/v1/a%0ab",
                           "/v1/%7f",
                           "/v1/%",
                           "/v1/%4",
                           "/v1/%g1",
                           "/v1/%1g",
                           "/v1/..\\metrics",
                           "/v1/%5c"}) {
    EXPECT_EQ(routing_path(path, scratch), std::nullopt) << path;
  }
}

}  // namespace
}  // namespace pointsman
