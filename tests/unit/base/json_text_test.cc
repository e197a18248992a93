#include "base/json_text.h"

#include <gtest/gtest.h>

namespace pointsman {
namespace {

TEST(JsonText, EscapesWhatJsonDoesNotAllow) {
  const auto quoted = [](std::string_view text) {
    std::string out;
    append_json_string(out, text);
    return out;
  };
  EXPECT_EQ(quoted("a\"\\/\t\x01\x7f"), "\"a\\\"\\\\/\\u0009\\u0001\\u007f\"");
  EXPECT_EQ(quoted("\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x91\xa9"),
            "\"\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x91\xa9\"");
  EXPECT_EQ(quoted("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(quoted("\xc3"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(quoted("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(quoted("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(quoted("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace pointsman
