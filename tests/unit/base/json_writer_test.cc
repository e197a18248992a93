#include "base/json_writer.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object();
  json.key("a").begin_array().integer(1).integer(-2).begin_object().end_object().end_array();
  json.key("b").begin_object().key("c").boolean(true).key("d").null().end_object();
  json.key("e").number(0.1);
  json.key("f").number(std::numeric_limits<double>::quiet_NaN());
  json.key("g").string("x");
  json.end_object();
  EXPECT_EQ(json.take(),
            "{\"a\":[1,-2,{}],\"b\":{\"c\":true,\"d\":null},\"e\":0.1,\"f\":null,\"g\":\"x\"}");
}

}  // namespace
}  // namespace pointsman
