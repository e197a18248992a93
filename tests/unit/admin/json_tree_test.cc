#include "admin/json_tree.h"

#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(JsonTree, KeepsTextsNumbersAndOrder) {
  const auto tree = parse_json_tree(R"({"url":"http:\/\/a","weight":2.5,"on":true,"n":null,)"
                                    R"("list":[1,"1"]})");
  ASSERT_TRUE(tree.ok());
  ASSERT_EQ(tree->members.size(), 5U);
  EXPECT_EQ(tree->members[0].value.text, "http://a");
  EXPECT_TRUE(tree->members[0].value.quoted);
  EXPECT_EQ(tree->members[1].value.text, "2.5");
  EXPECT_FALSE(tree->members[1].value.quoted);
  EXPECT_EQ(tree->members[2].value.text, "true");
  EXPECT_EQ(tree->members[3].value.kind, YamlNode::Kind::kNull);
  ASSERT_EQ(tree->members[4].value.items.size(), 2U);
}

TEST(JsonTree, RefusesWhatIsNotOneJsonDocument) {
  for (const char* text : {"", "{", "{\"a\":1}{}", "{a:1}", "\xFF", "{\"a\":1,\"a\":2}"}) {
    EXPECT_FALSE(parse_json_tree(text).ok()) << text;
  }
  EXPECT_FALSE(parse_json_tree(std::string(40, '[') + std::string(40, ']')).ok());
  EXPECT_FALSE(parse_json_tree(std::string(5000, '[')).ok());
}

}  // namespace
}  // namespace pointsman
