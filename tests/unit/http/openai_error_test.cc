#include "http/openai_error.h"

#include <gtest/gtest.h>

#include "http/head_parser.h"

namespace pointsman {
namespace {

// D52
const OwnError kUnknownModel{.status = 404,
                             .type = "invalid_request_error",
                             .message = "the model `no-such` does not exist",
                             .kind = "unknown_model",
                             .code = "model_not_found",
                             .param = "model"};
const OwnError kNoReplica{.status = 503,
                          .type = "upstream_error",
                          .message = "no replica is \"usable\"\n",
                          .kind = "no_replica",
                          .code = "",
                          .param = "",
                          .retry_after_s = 5};

TEST(OwnError, BodyHasOpenAisForm) {
  std::string body;
  append_error_body(kUnknownModel, body);
  EXPECT_EQ(body, R"({"error":{"message":"the model `no-such` does not exist",)"
                  R"("type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  body.clear();
  append_error_body(kNoReplica, body);
  EXPECT_EQ(body, R"({"error":{"message":"no replica is \"usable\"\n","type":"upstream_error",)"
                  R"("param":null,"code":null}})");
}

TEST(OwnError, ResponseIsWellFramedAndSaysItsKind) {
  std::string out;
  append_error_response(kNoReplica, "id-1", false, false, out);
  ResponseHeadParser parser;
  const HeadResult result = parser.parse(out);
  ASSERT_EQ(result.status, HeadResult::kDone) << result.reason;
  const ResponseHead& head = parser.head();
  EXPECT_EQ(head.status(), 503);
  EXPECT_EQ(head.reason(), "Service Unavailable");
  EXPECT_EQ(head.find("x-pointsman-error"), "no_replica");
  EXPECT_EQ(head.find("retry-after"), "5");
  EXPECT_EQ(head.request_id(), "id-1");
  EXPECT_FALSE(head.keep_alive());
  EXPECT_EQ(head.content_length(), out.size() - result.size);

  std::string head_only;
  append_error_response(kNoReplica, "id-1", true, true, head_only);
  ResponseHeadParser second;
  EXPECT_EQ(second.parse(head_only).size, head_only.size());
  EXPECT_EQ(second.head().content_length(), head.content_length());
}

TEST(OwnError, EventHasTheFormOfItsPath) {
  std::string out;
  append_error_event(Api::kChat, kUnknownModel, out);
  EXPECT_TRUE(out.starts_with("data: {\"error\":{\"message\":"));
  EXPECT_TRUE(out.ends_with("}}\n\n"));
  out.clear();
  append_error_event(Api::kMessages, kNoReplica, out);
  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"upstream_error\","
            "\"message\":\"no replica is \\\"usable\\\"\\n\"}}\n\n");
  out.clear();
  append_error_event(Api::kResponses, kNoReplica, out);
  EXPECT_EQ(out,
            "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\","
            "\"message\":\"no replica is \\\"usable\\\"\\n\",\"param\":null,"
            "\"sequence_number\":0}\n\n");
}

}  // namespace
}  // namespace pointsman
