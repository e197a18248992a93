#include "telemetry/json_writer.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace pointsman {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

TEST(JsonString, EscapesWhatRfc8259Demands) {
  EXPECT_EQ(quoted("plain"), "\"plain\"");
  EXPECT_EQ(quoted("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
  EXPECT_EQ(quoted(std::string_view("\0\x1F\n\r\t", 5)), "\"\\u0000\\u001f\\n\\r\\t\"");
}

TEST(JsonString, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(quoted("é€😀"), "\"é€😀\"");
  EXPECT_EQ(quoted("\xC0\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");  // overlong
  EXPECT_EQ(quoted("\xED\xA0\x80"),                               // a surrogate
            "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(quoted("a\xE2\x82"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");  // cut short
}

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
