#include "base/json_line.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

std::string problem_of(std::string_view text) {
  JsonLine line(text);
  while (line.next()) {
  }
  return std::string(line.problem());
}

TEST(JsonLine, GivesTheFieldsOfAnObjectInTheirOrder) {
  JsonLine line(
      R"( {"a" : "x\"y", "b":-2.5e1,"c":true, "d":[1, [2], "]"] , "e":{"f":"}"},"g":null,"h":false} )");
  std::vector<std::string> seen;
  while (const auto field = line.next()) {
    seen.push_back(std::string(field->key) + "=" + std::string(field->text));
  }
  EXPECT_EQ(line.problem(), "");
  EXPECT_EQ(seen, (std::vector<std::string>{R"(a=x\"y)", "b=-2.5e1", "c=true", R"(d=[1, [2], "]"])",
                                            R"(e={"f":"}"})", "g=null", "h=false"}));
}

TEST(JsonLine, TellsNumbersFromTexts) {
  JsonLine line(R"({"a":"1","b":1})");
  EXPECT_EQ(line.next()->kind, JsonLine::Kind::kText);
  const auto number = line.next();
  EXPECT_EQ(number->kind, JsonLine::Kind::kNumber);
  EXPECT_EQ(number->number, 1.0);
}

TEST(JsonLine, AnEmptyObjectHasNoField) {
  JsonLine line("{}");
  EXPECT_FALSE(line.next());
  EXPECT_FALSE(line.next());
  EXPECT_EQ(line.problem(), "");
}

TEST(JsonLine, SaysWhatIsWrong) {
  EXPECT_EQ(problem_of(""), "is not a JSON object");
  EXPECT_EQ(problem_of("[1]"), "is not a JSON object");
  EXPECT_EQ(problem_of("{"), "is not a JSON object of keys and values");
  EXPECT_EQ(problem_of("{1:2}"), "is not a JSON object of keys and values");
  EXPECT_EQ(problem_of(R"({"a" 1})"), "is not a JSON object of keys and values");
  EXPECT_EQ(problem_of(R"({"a":"b)"), "has a value that is no JSON");
  EXPECT_EQ(problem_of(R"({"a":"b\")"), "has a value that is no JSON");
  EXPECT_EQ(problem_of(R"({"a":[1,{"b":2})"), "has a value that is no JSON");
  EXPECT_EQ(problem_of(R"({"a":nan})"), "has a value that is no JSON");
  EXPECT_EQ(problem_of(R"({"a":1e999})"), "has a value that is no JSON");
  EXPECT_EQ(problem_of(R"({"a":1 "b":2})"), "does not end as a JSON object does");
  EXPECT_EQ(problem_of(R"({"a":1} x)"), "has something after its object");
}

TEST(JsonNumbers, GivesTheNumbersOfAList) {
  JsonNumbers numbers("[17, 2.5 ,-3]");
  EXPECT_EQ(numbers.next(), 17.0);
  EXPECT_EQ(numbers.next(), 2.5);
  EXPECT_EQ(numbers.next(), -3.0);
  EXPECT_EQ(numbers.next(), std::nullopt);
  EXPECT_EQ(JsonNumbers("[]").next(), std::nullopt);
  EXPECT_EQ(JsonNumbers("x").next(), std::nullopt);
  EXPECT_EQ(JsonNumbers(R"(["1"])").next(), std::nullopt);
}

}  // namespace
}  // namespace pointsman
