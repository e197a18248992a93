#include "feeds/models_list.h"

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

namespace pointsman {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string body_of(const std::string& name) {
  std::ifstream stream(std::string(POINTSMAN_TEST_DATA "/") + name, std::ios::binary);
  EXPECT_TRUE(stream.good()) << name;
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  return bytes.substr(bytes.find("\r\n\r\n") + 4);
}

TEST(ModelsList, ReadsAVllmListAsCaptured) {
  const std::optional<ModelsList> list =
      parse_models_list(body_of("vllm/04-get-v1_models.response.http"));
  ASSERT_TRUE(list.has_value());
  EXPECT_THAT(list->ids(), ElementsAre("tiny"));
  EXPECT_TRUE(list->binding);
  EXPECT_EQ(list->entries[0].max_model_len, 2048U);
  EXPECT_THAT(list->entries[0].object, HasSubstr("\"permission\""));
}

TEST(ModelsList, TheBaseModelIsTheFirstThatIsNoAdapter) {
  const auto base = [](std::string_view body) { return parse_models_list(body)->base_model(); };
  EXPECT_EQ(base(R"({"data": [{"id": "ad1", "parent": "m1"}, {"id": "m1", "parent": null},
                              {"id": "m2"}]})"),
            "m1");
  EXPECT_EQ(base(R"({"data": [{"id": "m2"}]})"), "m2");
  EXPECT_EQ(base(R"({"data": [{"id": "ad1", "parent": "m1"}]})"), "");
  EXPECT_EQ(base(body_of("vllm/04-get-v1_models.response.http")), "tiny");
}

TEST(ModelsList, ALlamaCppListBindsToNothing) {
  const std::optional<ModelsList> list =
      parse_models_list(body_of("llama.cpp/03-get-v1_models.response.http"));
  ASSERT_TRUE(list.has_value());
  EXPECT_THAT(list->ids(), ElementsAre("tiny"));
  EXPECT_FALSE(list->binding);
}

TEST(ModelsList, WhatIsNoListIsNone) {
  for (const char* body : {"", "{}", "[]", "{\"data\":{}}", "{\"data\":[{\"id\":\"a\"}", "null",
                           "{\"error\":{\"message\":\"no\"}}", "{\"data\":[{\"id\":\"a\"}]} x"}) {
    EXPECT_FALSE(parse_models_list(body).has_value()) << body;
  }
  EXPECT_TRUE(parse_models_list("{\"data\":[]}")->entries.empty());
  EXPECT_THAT(
      parse_models_list("{\"data\":[1,{\"id\":7},{\"name\":\"x\"},{\"id\":\"\"},{\"id\":\"a\"}]}")
          ->ids(),
      ElementsAre("a"));
}

// Case D55: api/models.json. Each id once, whole, with the smaller max_model_len.
TEST(ModelsList, MergesWhatServersSay) {
  const std::optional<ModelsList> a = parse_models_list(
      R"({"data": [{"id": "m1", "object": "model", "created": 5, "owned_by": "x",
          "max_model_len": 32768, "parent": null}]})");
  const std::optional<ModelsList> b = parse_models_list(
      R"({"data": [{"id": "m1", "object": "model", "created": 9, "owned_by": "x",
          "max_model_len": 16384, "parent": null},
         {"id": "m1-adapter", "object": "model", "created": 9, "owned_by": "x", "parent": "m1"}]})");
  ASSERT_TRUE(a && b);
  for (const auto& lists : {std::vector<const ModelsList*>{&*a, &*b}, {&*b, &*a}}) {
    std::string merged;
    append_merged_models(merged, lists);
    simdjson::dom::parser parser;
    simdjson::dom::element json;
    ASSERT_EQ(parser.parse(merged).get(json), simdjson::SUCCESS) << merged;
    EXPECT_EQ(std::string_view(json["object"]), "list");
    ASSERT_EQ(simdjson::dom::array(json["data"]).size(), 2U);
    simdjson::dom::element m1 = json.at_pointer("/data/0").value();
    EXPECT_EQ(std::string_view(m1["id"]), "m1");
    EXPECT_EQ(std::uint64_t(m1["max_model_len"]), 16384U);
    EXPECT_EQ(std::string_view(m1["owned_by"]), "x");
    EXPECT_TRUE(m1["parent"].is_null());
    EXPECT_EQ(std::string_view(json.at_pointer("/data/1/parent").value()), "m1");
  }
}

TEST(ModelsList, MergingNothingIsAnEmptyList) {
  std::string merged;
  append_merged_models(merged, {});
  EXPECT_EQ(merged, R"({"object":"list","data":[]})");
}

TEST(ModelsList, TheEntryThatSaysALengthGoesBeforeOneThatDoesNot) {
  const std::optional<ModelsList> silent = parse_models_list(R"({"data":[{"id":"m"}]})");
  const std::optional<ModelsList> says =
      parse_models_list(R"({"data":[{"id":"m","max_model_len":10}]})");
  std::string merged;
  append_merged_models(merged, {&*silent, &*says});
  EXPECT_EQ(merged, R"({"object":"list","data":[{"id":"m","max_model_len":10}]})");
}

}  // namespace
}  // namespace pointsman
