#include "sim/trace_reader.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

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

TEST_F(Trace, OnlyARegularFileIsOne) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(read().empty());  // without waiting for a writer
  EXPECT_NE(error.find("must be a regular file"), std::string::npos) << error;
  std::remove(path.c_str());
  const Result<TraceReader> folder = TraceReader::open(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("must be a regular file"), std::string::npos);
}

TEST_F(Trace, BytesThatAreNoTextAreSaidToBeNone) {
  using std::string_literals::operator""s;
  for (const std::string& bytes : {"\0\0\0\0"s, "\x1f\x8b\b\0\0\0\0\0\x02\x03"s, "TIME\0\n"s}) {
    write(bytes);
    EXPECT_TRUE(read().empty());
    EXPECT_NE(error.find(path + ":1: is no text"), std::string::npos) << error;
  }
}

TEST_F(Trace, TheAccessLogIsNamedAndSoIsWhatIsWanted) {
  write(R"({"at":"2026-11-30T03:21:20.026Z","client":"127.0.0.1","method":"POST","path":"/v1/x",)"
        R"("request_id":"1a","model":"m","replica":"http://a:1","reason":"policy","status":200,)"
        R"("tries":1,"stream":true,"prompt_tokens":959,"output_tokens":48,"ttft_ms":81.6,)"
        R"("whole_ms":900.5})"
        "\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(path + ":1: is the access log"), std::string::npos) << error;
  EXPECT_NE(error.find("docs/decision_log.md"), std::string::npos) << error;
}

TEST_F(Trace, AFileWithoutAUsableLineSaysHowManyThereWereAndWhyTheFirstIsNone) {
  const auto none = [this] {
    Result<TraceReader> reader = TraceReader::open(path);
    if (!reader) return reader.error().message;
    TraceRequest request;
    const Result<bool> more = reader->next(request);
    EXPECT_TRUE(more && !*more);
    return reader->none_text();
  };
  write(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,7,0\n"
      "2023-11-16 18:15:47,0,4\n");
  EXPECT_EQ(none(),
            "there is no request; left out: 2 lines, the first of them line 2: it has no answer "
            "tokens");
  write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,4\n");
  EXPECT_EQ(none(),
            "there is no request; left out: 1 line, the first of them line 2: it has no prompt "
            "tokens");
  write(
      R"({"pointsman_decision_log":1,"start":"2026-01-31T12:00:00.000Z","block_tokens":16,"sample":1})"
      "\n"
      R"({"n":0,"t":7,"estimated_tokens":30,"status":503})"
      "\n");
  EXPECT_EQ(none(),
            "there is no request; left out: 1 line, the first of them line 2: it got no answer");
}

constexpr char kHeader[] =
    R"({"pointsman_decision_log":1,"start":"2026-01-31T12:00:00.000Z","block_tokens":16,"sample":1})"
    "\n";

// One hash per block behind the prefix.
std::string hashes(int count) {
  std::string text = ",\"hashes\":\"";
  for (int i = 0; i < count; ++i) text += "00000000000000ff";
  return text + "\"";
}

TEST_F(Trace, TheDecisionLogIsReadInTheOrderOfArrival) {
  // A long answer ends, and is written down, behind one that came after it.
  write(kHeader +
        std::string(R"({"n":0,"t":5.5,"model":"a \"t\":1 b","session":"00000000000000aa",)"
                    R"("estimated_tokens":100,"max_tokens":64,"status":200,"output_tokens":7})"
                    "\n"
                    R"({"n":1,"t":2,"estimated_tokens":30,"prompt_tokens":40,"status":200,)"
                    R"("output_events":900,"later":{"candidates":[{"a":1}]}})"
                    "\n"
                    R"({"n":2,"t":6,"estimated_tokens":30,"status":200,"stream":false})"
                    "\n"
                    R"({"n":3,"t":7,"estimated_tokens":30,"status":503})"
                    "\n"
                    R"({"n":4,"t":8,"estimated_tokens":30,"status":499,"output_events":3})"
                    "\n"));
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 4U) << "one was not served; " << error;
  EXPECT_EQ(requests[0].at, Duration{});
  EXPECT_EQ(requests[0].prompt_tokens, 40U) << "as the engine counted";
  EXPECT_EQ(requests[0].output_tokens, 900U) << "events stand for tokens where nobody counted";
  EXPECT_EQ(requests[0].max_tokens, 0U) << "no limit";
  EXPECT_EQ(requests[0].session_key, 0U);
  EXPECT_EQ(requests[1].at, std::chrono::milliseconds(3'500));
  EXPECT_EQ(requests[1].prompt_tokens, 100U);
  EXPECT_EQ(requests[1].output_tokens, 7U);
  EXPECT_EQ(requests[1].max_tokens, 64U);
  EXPECT_EQ(requests[1].session_key, 0xaaU);
  EXPECT_EQ(requests[2].output_tokens, 1U) << "an answer without tokens";
  EXPECT_EQ(requests[3].output_tokens, 3U) << "of a client that left";
}

TEST_F(Trace, PromptsOfTheDecisionLogFormATree) {
  write(kHeader +
        // 10 whole blocks and 8 tokens, answered by 20.
        std::string(R"({"n":0,"t":0,"session":"0a","estimated_tokens":168,"status":200,)"
                    R"("output_tokens":20,"blocks":10)") +
        hashes(10) + "}\n" +
        // Its session goes on: behind prompt and answer, 188 tokens.
        R"({"n":1,"t":1,"session":"0a","estimated_tokens":320,"status":200,"output_tokens":5,)" +
        R"("blocks":20,"prefix":[0,10])" + hashes(10) + "}\n" +
        // Another session has the first six blocks.
        R"({"n":2,"t":2,"session":"0b","estimated_tokens":160,"status":200,"output_tokens":1,)" +
        R"("blocks":10,"prefix":[0,6])" + hashes(4) + "}\n" +
        // And one all blocks of the first, but not its answer: it asks the same.
        R"({"n":3,"t":3,"session":"0a","estimated_tokens":168,"status":200,"output_tokens":9,)" +
        R"("blocks":10,"prefix":[0,10]})" + "\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 4U) << error;
  const auto ends = [&](std::size_t i) {
    std::vector<std::uint32_t> list;
    for (const ContentRun& run : requests[i].content) list.push_back(run.end);
    return list;
  };
  using Ends = std::vector<std::uint32_t>;
  EXPECT_EQ(ends(0), (Ends{96, 188})) << "what the other session has as well, and its own";
  EXPECT_EQ(ends(1), (Ends{96, 188, 325}));
  EXPECT_EQ(ends(2), (Ends{96, 161}));
  EXPECT_EQ(ends(3), (Ends{96, 160, 177}));
  EXPECT_TRUE(is_shareable(requests[0].content[0].id));
  EXPECT_FALSE(is_shareable(requests[0].content[1].id));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(requests[i].content[0].id, requests[0].content[0].id);
  }
  EXPECT_EQ(requests[1].content[1].id, requests[0].content[1].id);
  EXPECT_EQ(requests[3].content[1].id, requests[0].content[1].id);
  EXPECT_NE(requests[2].content[1].id, requests[0].content[1].id);
  EXPECT_NE(requests[3].content[2].id, requests[1].content[2].id);
}

TEST_F(Trace, BlocksOfTheDecisionLogAreStretchedToTheEnginesCount) {
  // The router took the prompt for 100 tokens in 5 blocks, the engine counted 150: 30 a block.
  write(kHeader +
        std::string(R"({"n":0,"t":0,"estimated_tokens":100,"prompt_tokens":150,"status":200,)"
                    R"("output_tokens":1,"blocks":5,"block_tokens":20)") +
        hashes(5) + "}\n" +
        R"({"n":1,"t":1,"estimated_tokens":80,"prompt_tokens":130,"status":200,)" +
        R"("output_tokens":1,"blocks":4,"block_tokens":20,"prefix":[0,3])" + hashes(1) + "}\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 2U) << error;
  EXPECT_EQ(requests[1].content[0].end, 90U);
  EXPECT_EQ(requests[1].content[0].id, requests[0].content[0].id);
  EXPECT_EQ(requests[1].content[1].end, 131U);
}

TEST_F(Trace, DecisionLogsMayBePutBehindEachOtherAndBePartsOfOne) {
  const std::string line = R"({"n":7,"t":10,"estimated_tokens":64,"status":200,"output_tokens":1,)"
                           R"("blocks":4,"prefix":[3,2])" +
                           hashes(2) + "}\n";
  std::string later = kHeader;
  later.replace(later.find("12:00:00"), 8, "12:00:01");
  // The second file of the same line is of a second later; request 3 is in neither.
  write(later + line + kHeader + line + line);
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 3U) << error;
  EXPECT_EQ(requests[2].at, std::chrono::seconds(1));
  EXPECT_EQ(requests[0].content[0].end, 32U);
  EXPECT_EQ(requests[0].content[0].id, requests[1].content[0].id) << "what is missing is the same";
  EXPECT_NE(requests[0].content[1].id, requests[1].content[1].id);
  EXPECT_NE(requests[0].content[0].id, requests[2].content[0].id) << "of another file";
}

TEST_F(Trace, FaultsOfTheDecisionLogAreToldWithTheirLine) {
  const auto error_of = [this](const std::string& line) {
    write(kHeader + std::string("{\"n\":0,\"t\":0,\"estimated_tokens\":3,\"status\":200}\n") +
          line + "\n");
    EXPECT_TRUE(read().empty());
    return error;
  };
  const std::string good = R"("n":1,"t":1,"estimated_tokens":9,"status":200)";
  const std::string where = path + ":3: is no line of the decision log (docs/decision_log.md): it ";
  EXPECT_EQ(error_of("what"), where + "is not a JSON object");
  EXPECT_EQ(error_of("{" + good), where + "does not end as a JSON object does");
  EXPECT_EQ(error_of(R"({"t":1,"estimated_tokens":9,"status":200})"),
            where + "has no number of \"n\"");
  EXPECT_EQ(error_of(R"({"n":1,"estimated_tokens":9,"status":200})"), where + "has no time \"t\"");
  EXPECT_EQ(error_of(R"({"n":1,"t":-1,"estimated_tokens":9,"status":200})"),
            where + "has no time \"t\"");
  EXPECT_EQ(error_of("{" + good + R"(,"prompt_tokens":1.5})"),
            where + "has no number of \"prompt_tokens\"");
  EXPECT_EQ(error_of("{" + good + R"(,"session":"xyz"})"),
            where + "has a \"session\" that is no hash");
  EXPECT_EQ(error_of("{" + good + R"(,"prefix":[1]})"),
            where + "has a \"prefix\" that is no [request, blocks]");
  const std::string uneven = where +
                             "has not one hash for each of its \"blocks\" behind the "
                             "\"prefix\"";
  EXPECT_EQ(error_of("{" + good + R"(,"blocks":2})"), uneven);
  EXPECT_EQ(error_of("{" + good + R"(,"blocks":2,"prefix":[0,3]})"), uneven);
  EXPECT_EQ(error_of("{" + good + R"(,"prefix":[0,3]})"), uneven);

  write(R"({"pointsman_decision_log":2,"start":"2026-01-31T12:00:00.000Z"})");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":1: is no line of the decision log (docs/decision_log.md): it begins a "
                       "decision log of another version (known: 1)"),
            std::string::npos)
      << error;
  write(R"({"pointsman_decision_log":1})");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":1:"), std::string::npos) << error;
}

TEST_F(Trace, TheOrderOfTimeIsAskedFor) {
  write(
      "Timestamp,Request tokens,Response tokens\n"
      "100,1,1\n110,1,1\n100.5,1,1\n99,1,1\n");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(path + ":5: is 11 s earlier than a line before it"), std::string::npos)
      << error;
}

TEST_F(Trace, WhatIsNotTakenAsItIsIsCounted) {
  write(
      "Timestamp,Request tokens,Response tokens\n"
      "1,10,1\n2,10,0\n3,0,10\n4,10,1\n3.5,10,1\n5,0,0\n");
  Result<TraceReader> reader = TraceReader::open(path);
  ASSERT_TRUE(reader);
  TraceRequest request;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(*reader->next(request));
  EXPECT_EQ(reader->left_out(), 2U);
  EXPECT_EQ(reader->late(), 1U);
  EXPECT_FALSE(*reader->next(request));
  EXPECT_EQ(reader->left_out(), 3U);
}

TEST_F(Trace, TimesThatNoRunReachesAreRefused) {
  for (const char* time : {"100000006", "1e9", "1e18", "1e300"}) {
    write("Timestamp,Request tokens,Response tokens\n5,1,1\n" + std::string(time) + ",1,1\n");
    EXPECT_TRUE(read().empty());
    EXPECT_NE(error.find(path + ":3: comes "), std::string::npos) << error;
  }
  // Far from zero, but not from each other.
  write("Timestamp,Request tokens,Response tokens\n1e15,1,1\n1000000000000001,1,1\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 2U) << error;
  EXPECT_EQ(requests[1].at, std::chrono::seconds(1));
}

TEST_F(Trace, DecisionLogsOfFarAwayYearsAreNoneTogether) {
  const std::string line = "{\"n\":0,\"t\":0,\"estimated_tokens\":3,\"status\":200}\n";
  std::string later = kHeader;
  later.replace(later.find("\"start\":\"20") + 11, 2, "97");
  write(kHeader + line + later + line);
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find("and a run may last 100000000 s"), std::string::npos) << error;
}

TEST_F(Trace, HeadersMayBeQuotedAndBeginWithAByteOrderMark) {
  write(
      "\xEF\xBB\xBF\"Timestamp\",\"Model, or none\",\"Request tokens\",\"Response tokens\"\n"
      "5,\"a,b\",472,\"18\"\n");
  const std::vector<TraceRequest> requests = read();
  ASSERT_EQ(requests.size(), 1U) << error;
  EXPECT_EQ(requests[0].prompt_tokens, 472U);
  EXPECT_EQ(requests[0].output_tokens, 18U);
}

TEST_F(Trace, AFolderAndBrokenObjectsAreNoTraces) {
  const Result<TraceReader> folder = TraceReader::open(testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("is a folder"), std::string::npos);
  write(R"({"timestamp": 1, "input_length": 5, "output_length": 2, "hash_ids": [1])");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find(":1: is no whole JSON object"), std::string::npos) << error;
  write(
      R"({"timestamp": 1, "input_length": 5, "timestamp": 2, "output_length": 2, "hash_ids": [1]})");
  EXPECT_TRUE(read().empty());
  EXPECT_NE(error.find("each once"), std::string::npos) << error;
}

}  // namespace
}  // namespace pointsman::sim
