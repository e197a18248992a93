#include "base/json_text.h"

#include <cstdio>
#include <string>

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

// Plain bytes are passed over some at a time: no byte may be overlooked for where it stands.
TEST(JsonText, EveryByteIsEscapedWhereverItStands) {
  for (int byte = 0; byte < 0x80; ++byte) {
    const auto c = static_cast<char>(byte);
    char escaped[8] = {c};
    if (c == '"' || c == '\\') {
      std::snprintf(escaped, sizeof escaped, "\\%c", byte);
    } else if (c == '\n') {
      std::snprintf(escaped, sizeof escaped, "\\n");
    } else if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(byte));
    }
    for (std::size_t before = 0; before < 20; ++before) {
      const std::string left(before, 'x');
      const std::string right(20 - before, '~');
      const std::string text = left + c + right;
      std::string out;
      append_json_text(out, text);
      EXPECT_EQ(out, left + escaped + right) << byte << " behind " << before;
      EXPECT_EQ(is_plain_json_text(text), out == text);
    }
  }
  EXPECT_FALSE(is_plain_json_text("12345678\xc3\xa9"));
  EXPECT_TRUE(is_plain_json_text(""));
}

}  // namespace
}  // namespace pointsman
