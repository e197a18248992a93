#include "access/key_table.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace pointsman {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeyTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    told_.clear();
    set_log_sink([](LogLevel, std::string_view line) { told_.emplace_back(line); });
  }
  void TearDown() override {
    set_log_sink(nullptr);
    std::filesystem::remove(file_);
  }

  static std::string line(const std::string& key) {
    return key_line("n-" + key, hash_of_key(key), 0) + "\n";
  }
  // In place of the file, at once, as rename(2) does it.
  void write(const std::string& text) const {
    std::ofstream(file_ + ".new") << text;
    std::filesystem::rename(file_ + ".new", file_);
  }
  [[nodiscard]] static bool has(const KeyTable& table, const std::string& key) {
    return table.keys()->find(hash_of_key(key)) != nullptr;
  }

  const std::string file_ = ::testing::TempDir() + "key_table_test." +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  static inline std::vector<std::string> told_;
};

TEST_F(KeyTableTest, WithoutAFileThereIsNoTable) {
  KeyTable table(file_, 0);
  const Result<void> loaded = table.load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("cannot be read"));
}

TEST_F(KeyTableTest, AChangeCountsOnceItHasStayed) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  const std::uint64_t generation = table.generation();
  table.look();
  EXPECT_EQ(table.generation(), generation);
  write(line("two"));
  table.look();
  EXPECT_TRUE(has(table, "one"));
  table.look();
  EXPECT_FALSE(has(table, "one"));
  EXPECT_TRUE(has(table, "two"));
  EXPECT_NE(table.generation(), generation);
  EXPECT_THAT(told_, ElementsAre(file_ + ": read again: 1 key"));
  table.look();
  EXPECT_EQ(table.reloads(), 1U);
}

TEST_F(KeyTableTest, ABadFileKeepsTheKeysAndIsToldOfOnce) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  write(line("two") + "three\n");
  for (int i = 0; i < 4; ++i) table.look();
  EXPECT_TRUE(has(table, "one"));
  EXPECT_FALSE(has(table, "two"));
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr(file_ + ":2: has no colon"));
  EXPECT_THAT(told_[0], HasSubstr("; the keys stay as they were"));
  EXPECT_EQ(table.failures(), 1U);
  write(line("two"));
  for (int i = 0; i < 2; ++i) table.look();
  EXPECT_TRUE(has(table, "two"));
}

TEST_F(KeyTableTest, AFileThatGoesKeepsTheKeys) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  std::filesystem::remove(file_);
  for (int i = 0; i < 4; ++i) table.look();
  EXPECT_TRUE(has(table, "one"));
  EXPECT_EQ(told_.size(), 1U);
}

// Whoever takes the last key out means it.
TEST_F(KeyTableTest, AFileWithoutKeysLetsNobodyIn) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  write("# nobody\n");
  table.reload();
  EXPECT_FALSE(has(table, "one"));
  EXPECT_THAT(told_, ElementsAre(HasSubstr("0 keys: every request is refused")));
}

TEST_F(KeyTableTest, ReloadDoesNotWait) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  write(line("two"));
  table.reload();
  EXPECT_TRUE(has(table, "two"));
}

TEST_F(KeyTableTest, AFileThatIsAppendedToInPlaceIsSeen) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  std::ofstream(file_, std::ios::app) << line("two");
  table.look();
  table.look();
  EXPECT_TRUE(has(table, "one"));
  EXPECT_TRUE(has(table, "two"));
  EXPECT_THAT(told_, ElementsAre(file_ + ": read again: 2 keys"));
}

TEST_F(KeyTableTest, ReadersOnOtherThreadsSeeOneSetOrTheOther) {
  write(line("one"));
  KeyTable table(file_, 0);
  ASSERT_TRUE(table.load().ok());
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load()) {
      const std::shared_ptr<const KeySet> keys = table.keys();
      ASSERT_EQ(keys->size(), 1U);
    }
  });
  for (int i = 0; i < 50; ++i) {
    write(line(i % 2 == 0 ? "two" : "one"));
    table.reload();
  }
  stop = true;
  reader.join();
}

}  // namespace
}  // namespace pointsman
