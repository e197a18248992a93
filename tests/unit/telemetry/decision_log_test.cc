#include "telemetry/decision_log.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/json_line.h"

namespace pointsman {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kStart{std::chrono::hours(1)};

DecisionRecord example() {
  static const std::vector<BlockHash> blocks = {101, 102, 103};
  DecisionRecord record;
  record.arrived = kStart + microseconds(12'345'678);
  record.model = "m";
  record.pool = "general";
  record.replica = "http://a:8000";
  record.reason = "prefix";
  record.session = 0xabc;
  record.estimated_tokens = 55;
  record.max_tokens = 256;
  record.expected_output_tokens = 90;
  record.blocks = blocks;
  record.predicted_cached = 32;
  record.tries = 1;
  record.status = 200;
  record.stream = true;
  record.output_events = 19;
  record.prompt_tokens = 61;
  record.cached_tokens = 48;
  record.output_tokens = 20;
  record.ttft = microseconds(123'456);
  record.whole = milliseconds(4'000);
  return record;
}

// What stands behind the blocks in the example's line.
constexpr char kRest[] =
    R"(,"pool":"general","replica":"http://a:8000","reason":"prefix","tries":1,)"
    R"("predicted_cached":32,"status":200,"stream":true,"prompt_tokens":61,"cached_tokens":48,)"
    R"("output_tokens":20,"output_events":19,"ttft_ms":123.5,"whole_ms":4000.0})"
    "\n";

class DecisionLogFile : public testing::Test {
 protected:
  DecisionLogFile() {
    char name[] = "/tmp/pointsman-decisions-XXXXXX";
    folder_ = mkdtemp(name);
    options_.path = folder_ + "/d.log";
    options_.key = "k-secret";
  }
  ~DecisionLogFile() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<DecisionLog> open() {
    // 2026-01-31 12:34:56.007 UTC, by `date -u -d @1769862896`.
    auto log = DecisionLog::open(
        options_, kStart, std::chrono::system_clock::time_point{milliseconds(1'769'862'896'007)});
    EXPECT_TRUE(log.ok()) << log.error().message;
    return std::move(*log);
  }
  // Writes them all, and returns the file.
  std::string write(const std::vector<DecisionRecord>& records) {
    {
      const auto log = open();
      DecisionLog::Writer writer(*log);
      for (const DecisionRecord& record : records) writer.write(record);
    }
    return content();
  }
  std::string content(const std::string& ending = "") const {
    std::ifstream in(options_.path + ending);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string folder_;
  DecisionLogOptions options_;
};

constexpr char kHeader[] =
    R"({"pointsman_decision_log":1,"start":"2026-01-31T12:34:56.007Z","block_tokens":16,"sample":1})"
    "\n";

// The hashes were computed by another program (Python), from the construction in opaque_hash.h.
TEST_F(DecisionLogFile, IsWhatItsPageSays) {
  const std::string line =
      R"({"n":0,"t":12.345678,"model":"m","session":"e184b101a0e14b0c","estimated_tokens":55,)"
      R"("max_tokens":256,"expected_output_tokens":90,"blocks":3,)"
      R"("hashes":"7028bea91af16b81b5112d09614a2a7d50f5f387dc0842de")";
  EXPECT_EQ(write({example()}), kHeader + line + kRest);
}

TEST_F(DecisionLogFile, ALineNamesTheLongestBeginningThatTheFileHasAndListsTheOtherHashes) {
  const std::vector<BlockHash> next = {101, 102, 103, 104, 105};
  const std::vector<BlockHash> other = {101, 102, 201};
  std::vector<DecisionRecord> records(4, example());
  records[1].blocks = next;
  records[2].blocks = other;
  records[3].blocks = next;  // the same again
  const std::string text = write(records);
  EXPECT_NE(text.find(R"({"n":1,)"), std::string::npos);
  EXPECT_NE(text.find(R"("blocks":5,"prefix":[0,3],"hashes":"c741a9beb0b577ef84d64da3736b1723")"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("blocks":3,"prefix":[0,2],"hashes":"61be1649e45ac1fe",)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(std::string(R"("blocks":5,"prefix":[1,5])") + kRest), std::string::npos)
      << text;
}

TEST_F(DecisionLogFile, WhatIsNotKnownIsLeftOut) {
  DecisionRecord record;
  record.arrived = kStart;
  record.error = "no_replica";
  record.status = 503;
  EXPECT_EQ(write({record}),
            std::string(kHeader) +
                R"({"n":0,"t":0.000000,"estimated_tokens":0,"tries":0,"status":503,)"
                R"("error":"no_replica","stream":false,"whole_ms":0.0})"
                "\n");
}

TEST_F(DecisionLogFile, TextFromOutsideCannotBreakALineNorGrowIt) {
  DecisionRecord record = example();
  const std::string model = "a\"b\\c\nd\x01\xFF" + std::string(5000, 'x');
  record.model = model;
  record.error = record.reason = record.pool = record.replica = model;
  const std::string text = write({record, example()});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_LT(text.size(), 4000U);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    JsonLine fields(line);
    while (fields.next()) {
    }
    EXPECT_EQ(fields.problem(), "") << line;
  }
}

TEST_F(DecisionLogFile, ALongPromptsBlocksAreCut) {
  std::vector<BlockHash> blocks(DecisionLog::kMostBlocks + 5);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = i + 1;
  DecisionRecord record = example();
  record.blocks = blocks;
  const std::string text = write({record});
  EXPECT_NE(text.find(R"("blocks":32768,"hashes")"), std::string::npos);
  EXPECT_LT(text.size(), std::size_t{1} << 20) << "what readers take";
}

TEST_F(DecisionLogFile, OtherKeysGiveOtherHashesAndNoneARandomOne) {
  std::set<std::string> seen;
  for (const char* key : {"k-secret", "k-other", "", ""}) {
    options_.key = key;
    options_.keep = 0;
    seen.insert(write({example()}));
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(DecisionLogFile, AFullFileMakesRoomForTheNextAndEachStandsAlone) {
  options_.max_bytes = 8'000;
  options_.keep = 2;
  const std::string line = write({example()}).substr(std::string(kHeader).size());
  const std::string later = std::string(R"("prefix":[0,3])") + kRest;
  {
    const auto log = open();
    DecisionLog::Writer writer(*log);
    for (int i = 0; i < 120; ++i) writer.write(example());
  }
  std::size_t lines = 0;
  for (const char* ending : {"", ".1", ".2"}) {
    const std::string text = content(ending);
    EXPECT_LE(text.size(), 8'000U);
    ASSERT_TRUE(text.starts_with(kHeader)) << ending;
    EXPECT_EQ(text.substr(std::string(kHeader).size(), line.size()), line) << "hashes once more";
    EXPECT_TRUE(text.ends_with(later));
    lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) - 1;
  }
  EXPECT_GT(content(".1").size(), 7'500U);
  EXPECT_LT(lines, 120U);
  EXPECT_FALSE(std::filesystem::exists(options_.path + ".3"));
}

TEST_F(DecisionLogFile, TheFileOfAnEarlierStartIsMovedAway) {
  const std::string text = write({example()});
  EXPECT_EQ(write({example(), example()}).substr(0, text.size()), text);
  EXPECT_EQ(content(".1"), text);
  options_.keep = 0;
  write({example()});
  EXPECT_EQ(content(), text);
  EXPECT_EQ(content(".1"), text) << "of a time when more were kept";
}

TEST_F(DecisionLogFile, ASampleHasSessionsWhole) {
  options_.sample = 0.25;
  const auto log = open();
  DecisionLog::Writer one(*log);
  DecisionLog::Writer two(*log);
  int taken = 0;
  for (std::uint64_t session = 1; session <= 4'000; ++session) {
    const bool takes = one.takes(session);
    taken += takes;
    EXPECT_EQ(one.takes(session), takes);
    EXPECT_EQ(two.takes(session), takes);
  }
  EXPECT_NEAR(taken, 1'000, 140) << "five standard deviations";
  int sessionless = 0;
  for (int i = 0; i < 4'000; ++i) sessionless += one.takes(0);
  EXPECT_NEAR(sessionless, 1'000, 140);
}

TEST_F(DecisionLogFile, ManyThreadsWriteOneFile) {
  auto log = open();
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log] {
        DecisionLog::Writer writer(*log);
        for (int i = 0; i < 1'000; ++i) writer.write(example());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  log.reset();
  const std::string text = content();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4'001);
  EXPECT_NE(text.find("{\"n\":3999,"), std::string::npos);
}

TEST_F(DecisionLogFile, ADiskThatIsFullLosesLinesAndCountsThem) {
  options_.path = "/dev/full";
  options_.keep = 0;
  auto log = DecisionLog::open(options_, kStart, {});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().message,
            "decision_log.path: cannot write '/dev/full': No space left on "
            "device");
}

TEST(DecisionLog, AFileThatCannotBeOpenedIsAnErrorThatNamesIt) {
  DecisionLogOptions options;
  options.path = "/nonexistent/d.log";
  auto log = DecisionLog::open(options, kStart, {});
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.error().message.find("decision_log.path: cannot write '/nonexistent/d.log'"),
            std::string::npos);
}

}  // namespace
}  // namespace pointsman
