#include "kv_events/msgpack_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "support/event_payload.h"

namespace pointsman {
namespace {

using test::Pack;
using Kind = MsgpackReader::Kind;

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out += static_cast<char>(value);
  return out;
}

// The examples of the specification's table of formats.
TEST(MsgpackReader, ReadsEveryFormatOfTheSpecification) {
  const auto read = [](std::string_view text) { return MsgpackReader(text).next(); };
  EXPECT_EQ(read(bytes({0x00})).integer, 0U);
  EXPECT_EQ(read(bytes({0x7F})).integer, 127U);
  EXPECT_EQ(read(bytes({0xFF})).kind, Kind::kNegative);
  EXPECT_EQ(static_cast<std::int64_t>(read(bytes({0xE0})).integer), -32);
  EXPECT_EQ(read(bytes({0xC0})).kind, Kind::kNil);
  EXPECT_EQ(read(bytes({0xC2})).kind, Kind::kBoolean);
  EXPECT_EQ(read(bytes({0xC3})).integer, 1U);
  EXPECT_EQ(read(bytes({0xCC, 0xFF})).integer, 255U);
  EXPECT_EQ(read(bytes({0xCD, 0x01, 0x02})).integer, 258U);
  EXPECT_EQ(read(bytes({0xCE, 0xFF, 0xFF, 0xFF, 0xFF})).integer, 0xFFFF'FFFFU);
  EXPECT_EQ(read(bytes({0xCF, 0xFF, 0, 0, 0, 0, 0, 0, 1})).integer, 0xFF00'0000'0000'0001U);
  EXPECT_EQ(static_cast<std::int64_t>(read(bytes({0xD0, 0x80})).integer), -128);
  EXPECT_EQ(static_cast<std::int64_t>(read(bytes({0xD1, 0xFF, 0x7F})).integer), -129);
  EXPECT_EQ(static_cast<std::int64_t>(read(bytes({0xD2, 0x80, 0, 0, 0})).integer), -2147483648LL);
  EXPECT_EQ(read(bytes({0xD3, 0, 0, 0, 0, 0, 0, 0, 9})).kind, Kind::kUnsigned);
  EXPECT_EQ(read(bytes({0xCA, 0x3F, 0xC0, 0, 0})).number, 1.5);
  EXPECT_EQ(read(bytes({0xCB, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0})).number, 1.5);
  EXPECT_EQ(read(bytes({0xA2, 'h', 'i'})).bytes, "hi");
  EXPECT_EQ(read(bytes({0xDA, 0, 2, 'h', 'i'})).bytes, "hi");
  EXPECT_EQ(read(bytes({0xDB, 0, 0, 0, 2, 'h', 'i'})).bytes, "hi");
  EXPECT_EQ(read(bytes({0xC4, 1, 0xFF})).kind, Kind::kBinary);
  EXPECT_EQ(read(bytes({0xC5, 0, 1, 0xFF})).bytes.size(), 1U);
  EXPECT_EQ(read(bytes({0xC6, 0, 0, 0, 1, 0xFF})).bytes.size(), 1U);
  EXPECT_EQ(read(bytes({0x92})).count, 2U);
  EXPECT_EQ(read(bytes({0xDC, 1, 0})).count, 256U);
  EXPECT_EQ(read(bytes({0xDD, 0, 1, 0, 0})).count, 65'536U);
  EXPECT_EQ(read(bytes({0x83})).kind, Kind::kMap);
  EXPECT_EQ(read(bytes({0xDE, 1, 0})).count, 256U);
  EXPECT_EQ(read(bytes({0xDF, 0, 0, 0, 3})).count, 3U);
  EXPECT_EQ(read(bytes({0xD6, 5, 1, 2, 3, 4})).kind, Kind::kExtension);
  EXPECT_EQ(read(bytes({0xC7, 2, 5, 1, 2})).bytes.size(), 2U);
}

TEST(MsgpackReader, SkipsWhatIsInsideHoweverDeep) {
  // As many arrays within arrays as the bytes allow.
  const std::string deep = std::string(100'000, '\x91') + "\x07\x2A";
  MsgpackReader reader(deep);
  reader.skip();
  EXPECT_FALSE(reader.broken());
  EXPECT_EQ(reader.next().integer, 42U);
}

TEST(MsgpackReader, CutBytesAreBrokenAndStaySo) {
  const std::string whole = Pack().array(3).text("abc").whole(70'000).real(1).bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    MsgpackReader reader(std::string_view(whole).substr(0, size));
    reader.skip();
    EXPECT_TRUE(reader.broken()) << size;
    EXPECT_EQ(reader.next().kind, Kind::kBroken);
  }
}

TEST(MsgpackReader, SmallIntegersTheShortWayAreThoseOfTheLongWay) {
  for (const std::uint32_t value :
       {0U, 1U, 127U, 128U, 255U, 256U, 65'535U, 65'536U, 0xFFFF'FFFFU}) {
    for (const std::string& form :
         {bytes({static_cast<int>(value & 0x7F)}), bytes({0xCC, static_cast<int>(value & 0xFF)}),
          bytes({0xCD, static_cast<int>((value >> 8) & 0xFF), static_cast<int>(value & 0xFF)}),
          bytes({0xCE, static_cast<int>(value >> 24), static_cast<int>((value >> 16) & 0xFF),
                 static_cast<int>((value >> 8) & 0xFF), static_cast<int>(value & 0xFF)})}) {
      std::uint32_t small = 0;
      MsgpackReader reader(form);
      ASSERT_TRUE(reader.next_small(small));
      EXPECT_EQ(reader.left(), 0U);
      EXPECT_EQ(small, MsgpackReader(form).next().integer);
    }
  }
  std::uint32_t none = 0;
  for (const std::string& form : {bytes({0xC0}), bytes({0xCD, 1}), bytes({0xFF}), std::string()}) {
    EXPECT_FALSE(MsgpackReader(form).next_small(none));
  }
}

}  // namespace
}  // namespace pointsman
