#include "telemetry/access_log.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace pointsman {
namespace {

using std::chrono::milliseconds;

AccessRecord example() {
  AccessRecord record;
  // 2026-01-31 12:34:56.007 UTC, by `date -u -d @1769862896`.
  record.at = std::chrono::system_clock::time_point{milliseconds(1'769'862'896'007)};
  record.client = "10.0.0.9";
  record.key = "alice";
  record.method = "POST";
  record.path = "/v1/chat/completions";
  record.request_id = "r-1";
  record.model = "m";
  record.replica = "http://a:8000";
  record.reason = "prefix";
  record.status = 200;
  record.tries = 1;
  record.stream = true;
  record.prompt_tokens = 1200;
  record.predicted_cached = 1024;
  record.cached_tokens = 1008;
  record.output_tokens = 250;
  record.request_bytes = 4800;
  record.response_bytes = 9000;
  record.ttft = std::chrono::microseconds(123'456);
  record.whole = milliseconds(4'000);
  return record;
}

TEST(AccessLine, IsOneJsonObjectWithTheDocumentedKeys) {
  std::string line;
  append_access_line(example(), line);
  EXPECT_EQ(line,
            "{\"at\":\"2026-01-31T12:34:56.007Z\",\"client\":\"10.0.0.9\",\"key\":\"alice\","
            "\"method\":\"POST\","
            "\"path\":\"/v1/chat/completions\",\"request_id\":\"r-1\",\"model\":\"m\","
            "\"replica\":\"http://a:8000\",\"reason\":\"prefix\",\"status\":200,\"tries\":1,"
            "\"stream\":true,\"prompt_tokens\":1200,\"predicted_cached\":1024,"
            "\"cached_tokens\":1008,\"output_tokens\":250,\"request_bytes\":4800,"
            "\"response_bytes\":9000,\"ttft_ms\":123.5,\"whole_ms\":4000.0}\n");
}

TEST(AccessLine, TextFromOutsideCannotBreakTheLineNorGrowIt) {
  AccessRecord record = example();
  const std::string model = "a\"b\\c\nd\x01\xFF" + std::string(5000, 'x');
  record.model = model;
  std::string line;
  append_access_line(record, line);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(line.find("\"model\":\"a\\\"b\\\\c\\nd\\u0001\xEF\xBF\xBDx"), std::string::npos);
  EXPECT_LT(line.size(), 1000U);
}

TEST(AccessLine, HasRoomForTheLongestTexts) {
  const std::string text(5000, '\x01');
  AccessRecord record = example();
  record.client = record.method = record.path = record.request_id = text;
  record.model = record.replica = record.reason = record.error = text;
  record.prompt_tokens = record.predicted_cached = UINT32_MAX;
  record.cached_tokens = record.output_tokens = INT64_MAX;
  record.request_bytes = record.response_bytes = UINT64_MAX;
  record.ttft = record.whole = Duration::max() - milliseconds(1);
  std::string line;
  append_access_line(record, line);
  std::string escaped;
  for (int i = 0; i < 256; ++i) escaped += "\\u0001";
  EXPECT_NE(line.find(",\"error\":\"" + escaped + "\",\"status\""), std::string::npos);
  EXPECT_TRUE(line.ends_with("}\n"));
}

class AccessLogFile : public testing::Test {
 protected:
  AccessLogFile() {
    char name[] = "/tmp/pointsman-access-XXXXXX";
    const int file = mkstemp(name);
    if (file >= 0) close(file);
    path_ = name;
  }
  ~AccessLogFile() override { unlink(path_.c_str()); }

  std::string content() const {
    std::ifstream in(path_);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  std::string path_;
};

TEST_F(AccessLogFile, EveryLineOfEveryThreadArrivesWhole) {
  {
    auto log = AccessLog::open(path_);
    ASSERT_TRUE(log.ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log] {
        AccessLog::Writer writer(**log);
        for (int i = 0; i < 1000; ++i) writer.write(example());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ((*log)->dropped_lines(), 0U);
  }
  std::string expected;
  append_access_line(example(), expected);
  std::istringstream lines(content());
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line + "\n", expected);
  EXPECT_EQ(count, 4000U);
}

TEST_F(AccessLogFile, IsAppendedTo) {
  for (int i = 0; i < 2; ++i) {
    auto log = AccessLog::open(path_);
    ASSERT_TRUE(log.ok());
    AccessLog::Writer writer(**log);
    writer.write(example());
  }
  std::string line;
  append_access_line(example(), line);
  EXPECT_EQ(content(), line + line);
}

TEST(AccessLog, AFileThatCannotBeOpenedIsAnErrorThatNamesIt) {
  auto log = AccessLog::open("/nonexistent/access.log");
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.error().message.find("/nonexistent/access.log"), std::string::npos);
}

}  // namespace
}  // namespace pointsman
