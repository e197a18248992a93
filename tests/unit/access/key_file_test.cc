#include "access/key_file.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// printf %s one | sha256sum, and two.
constexpr char kOne[] = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
constexpr char kTwo[] = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";

std::string line(const std::string& name, const std::string& hash, const std::string& rest = "") {
  return name + ":" + hash + rest + "\n";
}

std::string problem(const std::string& text) {
  const auto keys = parse_key_file(text, "keys");
  return keys.ok() ? "none" : keys.error().message;
}

TEST(KeyFile, ReadsNamesHashesAndLimits) {
  const auto keys = parse_key_file("# clients\r\n\n" + line("alice@example.org", kOne) + "  " +
                                       line("bob_2.x", kTwo, ":concurrent=8"),
                                   "keys");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].name, "alice@example.org");
  EXPECT_EQ((*keys)[0].hash, hash_of_key("one"));
  EXPECT_EQ((*keys)[0].concurrent, 0U);
  EXPECT_EQ((*keys)[1].name, "bob_2.x");
  EXPECT_EQ((*keys)[1].hash, hash_of_key("two"));
  EXPECT_EQ((*keys)[1].concurrent, 8U);
}

TEST(KeyFile, TheLastLineNeedsNoEnd) {
  const auto keys = parse_key_file("a:" + std::string(kOne), "keys");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->size(), 1U);
}

TEST(KeyFile, AnEmptyFileHasNoKeys) {
  const auto keys = parse_key_file("# nobody\n", "keys");
  ASSERT_TRUE(keys.ok());
  EXPECT_TRUE(keys->empty());
}

TEST(KeyFile, WhatIsMadeCanBeRead) {
  const auto keys = parse_key_file(
      key_line("a", hash_of_key("one"), 0) + "\n" + key_line("b", hash_of_key("two"), 3), "keys");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ((*keys)[0].hash, hash_of_key("one"));
  EXPECT_EQ((*keys)[1].concurrent, 3U);
}

TEST(KeyFile, ErrorsNameFileAndLine) {
  EXPECT_THAT(problem("\n" + line("a b", kOne)), StartsWith("keys:2: has no name"));
  EXPECT_THAT(problem(line("", kOne)), StartsWith("keys:1: has no name"));
  EXPECT_THAT(problem(line(std::string(65, 'n'), kOne)), StartsWith("keys:1: has no name"));
  EXPECT_THAT(problem(line("a", std::string(kOne).substr(1))),
              StartsWith("keys:1: has no SHA-256"));
  EXPECT_THAT(problem(line("a", std::string(64, 'g'))), StartsWith("keys:1: has no SHA-256"));
  EXPECT_THAT(problem(line("a", std::string(64, '0'))), StartsWith("keys:1: has no SHA-256"));
  EXPECT_THAT(problem(line("a", kOne, ":limit=3")), StartsWith("keys:1: has an unknown option"));
  EXPECT_THAT(problem(line("a", kOne, ":concurrent=0")), HasSubstr("`concurrent` that is no"));
  EXPECT_THAT(problem(line("a", kOne, ":concurrent=1x")), HasSubstr("`concurrent` that is no"));
  EXPECT_THAT(problem(line("a", kOne, ":concurrent=4294967297")),
              HasSubstr("`concurrent` that is no"));
  EXPECT_THAT(problem(line("a", kOne) + line("b", kOne)),
              StartsWith("keys:2: has the same key as a line before"));
  EXPECT_THAT(problem(line("a", kOne, ":concurrent=1") + line("a", kTwo)),
              StartsWith("keys:2: has another `concurrent`"));
}

// A key in the place of its hash is a usual slip, and logs are read by many.
TEST(KeyFile, ErrorsNeverShowTheLine) {
  const std::string key = "pm-aKeyThatSomebodyPutHereByMistake";
  EXPECT_THAT(problem(key + "\n"), Not(HasSubstr(key)));
  EXPECT_THAT(problem("alice:" + key + "\n"), Not(HasSubstr(key)));
  EXPECT_THAT(problem("alice:" + std::string(kOne) + ":" + key + "\n"), Not(HasSubstr(key)));
}

TEST(KeyFile, HasTenThousandKeysAtMost) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "k" + std::to_string(i);
    text += line(name, to_hex(hash_of_key(name)));
  }
  EXPECT_EQ(problem(text), "none");
  EXPECT_THAT(problem(text + line("more", kOne)), StartsWith("keys:10001: is one key more"));
}

TEST(KeyFile, AFileThatIsNotThereIsToldOf) {
  const auto keys = read_key_file("/nonexistent/keys");
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().message, "/nonexistent/keys: cannot be read: No such file or directory");
}

}  // namespace
}  // namespace pointsman
