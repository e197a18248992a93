#include "sim/trace_reader.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pointsman::sim {
namespace {

class Trace : public testing::Test {
 public:
  void write(const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  ~Trace() override { std::remove(path.c_str()); }

  // All requests, or nothing with `error` set.
  std::vector<TraceRequest> read() {
    error.clear();
    std::vector<TraceRequest> requests;
    Result<TraceReader> reader = TraceReader::open(path);
    if (!reader) {
      error = reader.error().message;
      return {};
    }
    TraceRequest request;
    for (;;) {
      const Result<bool> more = reader->next(request);
      if (!more) {
        error = more.error().message;
        return {};
      }
      if (!*more) return requests;
      requests.push_back(request);
    }
  }

  const std::string path = testing::TempDir() + "pointsman_trace_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  std::string error;
};

TEST_F(Trace, MooncakeLinesShareTheirLeadingBlocks) {
  write(
      R"({"timestamp": 27000, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]})"
      "\n"
      R"({"timestamp": 30500, "input_length": 512, "output_length": 1, "hash_ids": [46]})"
      "\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 2U) << error;
  EXPECT_EQ(requests[0].at, Duration{});
  EXPECT_EQ(requests[0].prompt_tokens, 1'100U);
  EXPECT_EQ(requests[0].output_tokens, 52U);
  EXPECT_EQ(requests[0].session_key, 0U);
  ASSERT_EQ(requests[0].content.size(), 4U) << "three blocks and the answer";
  EXPECT_EQ(requests[0].content[0].end, 512U);
  EXPECT_EQ(requests[0].content[2].end, 1'100U) << "the last block is cut";
  EXPECT_EQ(requests[0].content[3].end, 1'152U);
  EXPECT_TRUE(is_unique(requests[0].content[3].id));
  EXPECT_TRUE(is_shareable(requests[0].content[0].id));
  EXPECT_EQ(requests[1].at, std::chrono::milliseconds(3'500));
  EXPECT_EQ(requests[1].content[0].id, requests[0].content[0].id);
  EXPECT_NE(requests[1].content[1].id, requests[0].content[3].id);
}

TEST_F(Trace, BurstGptRequestsOfASessionContinueEachOther) {
  write(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\r\n"
      "100.0,s1,43,GPT-4,906,446,1352,Conversation log\r\n"
      "100.5,s2,1,ChatGPT,36,0,36,API log\r\n"
      "102.5,s1,2,ChatGPT,1400,29,1429,Conversation log\r\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 2U) << "one failed; " << error;
  EXPECT_EQ(requests[0].prompt_tokens, 906U);
  EXPECT_EQ(requests[0].content.front().end, 906U + 446U);
  EXPECT_EQ(requests[1].at, std::chrono::milliseconds(2'500));
  EXPECT_NE(requests[0].session_key, 0U);
  EXPECT_EQ(requests[0].session_key, requests[1].session_key);
  EXPECT_EQ(requests[0].content.front().id, requests[1].content.front().id);
}

TEST_F(Trace, BurstGptWithoutSessionsSharesNothing) {
  write(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,ChatGPT,1087,230,1317,Conversation log\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 2U) << error;
  EXPECT_EQ(requests[1].at, std::chrono::seconds(40));
  EXPECT_NE(requests[0].content.front().id, requests[1].content.front().id);
  EXPECT_TRUE(is_unique(requests[0].content.front().id));
}

TEST_F(Trace, AzureTimesAreDatesWithAndWithoutAZone) {
  write(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-12-31 23:59:59.5000000,374,44\n"
      "2024-01-01 00:00:01+00:00,396,109\n"
      "2024-03-01 00:00:00.25,396,109\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 3U) << error;
  EXPECT_EQ(requests[0].prompt_tokens, 374U);
  EXPECT_EQ(requests[0].output_tokens, 44U);
  EXPECT_NEAR(to_seconds(requests[1].at), 1.5, 1e-5);
  // January has 31 days, February of a leap year 29.
  EXPECT_NEAR(to_seconds(requests[2].at), 60 * 86'400 + 0.75, 1e-5);
}

TEST_F(Trace, TimesNeverGoBack) {
  write(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:15:46.5,374,44\n"
      "2023-11-16 18:15:48,1,1\n"
      "2023-11-16 18:15:47,1,1\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 3U) << error;
  EXPECT_EQ(requests[2].at, requests[1].at);
}

TEST_F(Trace, FaultsAreToldWithTheirLine) {
  write("hello\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(path + ":1: is no known trace"), std::string::npos) << error;
  write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,1\nyesterday,1,1\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":3: 'yesterday' is no time"), std::string::npos) << error;
  write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,many,1\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":2: 'many' is no number of tokens"), std::string::npos) << error;
  write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":2: has too few columns"), std::string::npos) << error;
  write(R"({"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": ["x"]})");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":1: an entry of hash_ids"), std::string::npos) << error;
  write(R"({"timestamp": 1, "input_length": -5, "output_length": 2, "hash_ids": []})");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":1: needs timestamp"), std::string::npos) << error;
  write(std::string((std::size_t{1} << 20) + 10, 'x'));
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find("longer than 1 MiB"), std::string::npos) << error;
  write("");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find("there is no request"), std::string::npos) << error;
  std::remove(path.c_str());
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find("cannot be read"), std::string::npos) << error;
}

}  // namespace
}  // namespace pointsman::sim
