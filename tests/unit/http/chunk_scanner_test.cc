#include "http/chunk_scanner.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_data.h"

namespace pointsman {
namespace {

struct Outcome {
  std::string payload;
  std::size_t consumed = 0;
  bool done = false;
  bool bad = false;
  bool operator==(const Outcome&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& o) {
  return out << o.consumed << " bytes, payload '" << o.payload << "'" << (o.done ? " done" : "")
             << (o.bad ? " bad" : "");
}

Outcome scan(const std::vector<std::string>& pieces) {
  ChunkScanner scanner;
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const std::size_t taken =
        scanner.feed(piece, [&](std::string_view run) { outcome.payload += run; });
    outcome.consumed += taken;
    if (taken < piece.size()) break;
  }
  outcome.done = scanner.done();
  outcome.bad = scanner.bad();
  EXPECT_EQ(scanner.payload_bytes(), outcome.payload.size());
  return outcome;
}

TEST(ChunkScanner, YieldsThePayloadAndStopsAtTheEnd) {
  const Outcome outcome = scan({"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\nGET /"});
  EXPECT_EQ(outcome.payload, "hello world");
  EXPECT_TRUE(outcome.done);
  EXPECT_EQ(outcome.consumed, std::string("5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n").size());
}

TEST(ChunkScanner, SameAnswerForEverySplit) {
  const std::vector<std::string> bodies = {
      "5\r\nhello\r\n0\r\n\r\n",
      "00A;ext=\"q\"\r\n0123456789\r\n1\r\nx\r\n0\r\nX-Trailer: v\r\nB:\r\n\r\nnext",
      "5\r\nhello!\r\n0\r\n\r\n",
      "5\nhello\r\n",
      "1c-and-more\r\n",
      "0\r\nbad trailer\r\n\r\n",
      "fffffffffffffffff\r\n",
  };
  for (const std::string& body : bodies) {
    const Outcome whole = scan({body});
    for (std::size_t a = 0; a <= body.size(); ++a) {
      for (std::size_t b = a; b <= body.size(); ++b) {
        EXPECT_EQ(scan({body.substr(0, a), body.substr(a, b - a), body.substr(b)}), whole)
            << "cut at " << a << " and " << b;
      }
    }
  }
}

// D04
TEST(ChunkScanner, RefusesSizesThatAreNotHexadecimalDigits) {
  const std::string bytes = test_data("framing/chunk-size-with-letters.http");
  EXPECT_TRUE(scan({bytes.substr(bytes.find("\r\n\r\n") + 4)}).bad);
  for (const char* line : {"", " 5", "5 ", "+5", "-5", "0x5", "5g", "5 ;a", "\t5", ";a"}) {
    EXPECT_TRUE(scan({std::string(line) + "\r\nhello\r\n0\r\n\r\n"}).bad) << line;
  }
}

TEST(ChunkScanner, SizesMustFitTheirType) {
  EXPECT_FALSE(scan({"7fffffffffffffff\r\nx"}).bad);
  EXPECT_TRUE(scan({"8000000000000000\r\nx"}).bad);
  EXPECT_TRUE(scan({"ffffffffffffffff\r\nx"}).bad);
  EXPECT_TRUE(scan({"10000000000000000\r\nx"}).bad);
  EXPECT_TRUE(scan({"00000000000000005\r\nx"}).bad);  // 17 digits, though a small number
  EXPECT_FALSE(scan({"0000000000000005\r\nx"}).bad);
}

TEST(ChunkScanner, RefusesLineEndsOtherThanCrlf) {
  for (const char* body : {"5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n",
                           "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\n\n", "5\r\rhello",
                           "5\r\nhelloXX", "5;a\nhello\r\n0\r\n\r\n", "0\r\nA: b\n\r\n"}) {
    EXPECT_TRUE(scan({body}).bad) << body;
  }
}

TEST(ChunkScanner, ExtensionsAndTrailersAreBounded) {
  const std::string extension(ChunkScanner::kMaxExtension, 'e');
  EXPECT_FALSE(scan({"5;" + extension + "\r\nhello\r\n0\r\n\r\n"}).bad);
  EXPECT_TRUE(scan({"5;" + extension + "e\r\nhello\r\n0\r\n\r\n"}).bad);
  EXPECT_TRUE(scan({"5;\x01\r\nhello\r\n0\r\n\r\n"}).bad);
  std::string trailers = "0\r\n";
  while (trailers.size() < 20'000) trailers += "X-T: " + std::string(100, 't') + "\r\n";
  EXPECT_TRUE(scan({trailers + "\r\n"}).bad);
  EXPECT_TRUE(scan({"0\r\nX-T: \x01\r\n\r\n"}).bad);
  EXPECT_TRUE(scan({"0\r\n: v\r\n\r\n"}).bad);
  EXPECT_TRUE(scan({"0\r\nX-T : v\r\n\r\n"}).bad);
}

TEST(ChunkScanner, BadStaysBad) {
  ChunkScanner scanner;
  scanner.feed("z");
  EXPECT_TRUE(scanner.bad());
  EXPECT_EQ(scanner.feed("5\r\nhello\r\n"), 0U);
  EXPECT_TRUE(scanner.bad());
}

TEST(ChunkScanner, TellsWhereAnotherChunkMayBePutIn) {
  ChunkScanner scanner;
  const std::string body = "5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";
  std::vector<std::size_t> boundaries;
  for (std::size_t i = 0; i <= body.size(); ++i) {
    if (scanner.at_chunk_boundary()) boundaries.push_back(i);
    if (i < body.size()) scanner.feed(std::string_view(body).substr(i, 1));
  }
  EXPECT_EQ(boundaries, (std::vector<std::size_t>{0, 10, 18}));
  EXPECT_TRUE(scanner.done());
}

TEST(ChunkScanner, CapturedStreamsEndWhereTheBytesEnd) {
  for (const char* name : {"vllm/09-chat-stream", "llama.cpp/12-chat-stream"}) {
    const std::string bytes = test_data(std::string(name) + ".response.http");
    const std::string body = bytes.substr(bytes.find("\r\n\r\n") + 4);
    const Outcome outcome = scan({body});
    EXPECT_TRUE(outcome.done) << name;
    EXPECT_EQ(outcome.consumed, body.size());
    EXPECT_TRUE(outcome.payload.starts_with("data: {")) << name;
    EXPECT_TRUE(outcome.payload.ends_with("data: [DONE]\n\n")) << name;
  }
}

}  // namespace
}  // namespace pointsman
