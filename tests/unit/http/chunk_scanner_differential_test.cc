// The chunk scanner beside another implementation, http_parser. A body that ours takes to its end,
// http_parser must take too, to the same byte and with the same data. What http_parser alone takes
// has to have one of the faults that ours refuses and it does not.

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <http_parser.h>

#include "base/rng.h"
#include "http/chunk_scanner.h"

namespace pointsman {
namespace {

struct Reading {
  bool done = false;
  bool bad = false;
  std::size_t size = 0;  // of the body with its framing; of done
  std::string data;
};

Reading ours(std::string_view body) {
  ChunkScanner scanner;
  Reading reading;
  reading.size = scanner.feed(body, [&](std::string_view run) { reading.data += run; });
  reading.done = scanner.done();
  reading.bad = scanner.bad();
  return reading;
}

int on_data(http_parser* parser, const char* at, std::size_t size) {
  static_cast<Reading*>(parser->data)->data.append(at, size);
  return 0;
}
int on_end(http_parser* parser) {
  static_cast<Reading*>(parser->data)->done = true;
  http_parser_pause(parser, 1);
  return 0;
}

Reading theirs(std::string_view body) {
  static constexpr std::string_view kHead =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  http_parser_settings settings;
  http_parser_settings_init(&settings);
  settings.on_body = on_data;
  settings.on_message_complete = on_end;
  http_parser parser;
  http_parser_init(&parser, HTTP_REQUEST);
  Reading reading;
  parser.data = &reading;
  const std::string bytes = std::string(kHead).append(body);
  const std::size_t taken = http_parser_execute(&parser, &settings, bytes.data(), bytes.size());
  reading.bad = !reading.done && HTTP_PARSER_ERRNO(&parser) != HPE_OK;
  reading.size = reading.done ? taken - kHead.size() : 0;
  return reading;
}

// What RFC 9112 does not allow and http_parser takes: white space around a size, control characters
// in an extension, more than 16 digits, other bytes than CRLF behind the data, and of trailers what
// it takes of headers.
bool only_theirs_may_take(std::string_view body) {
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\r\n", at);
    if (end == std::string_view::npos) return true;  // bare line ends
    const std::string_view line = body.substr(at, end - at);
    const std::size_t digits = line.find_first_not_of("0123456789abcdefABCDEF");
    const std::string_view size = line.substr(0, digits);
    if (size.empty() || size.size() > 16) return true;
    if (digits != std::string_view::npos && line[digits] != ';') return true;
    for (const char c : line) {
      if ((c >= 0 && c < ' ' && c != '\t') || c == '\x7f') return true;
    }
    const std::size_t data = std::stoull(std::string(size), nullptr, 16);
    if (data == 0) return end + 2 < body.size() && body.substr(end + 2, 2) != "\r\n";  // trailers
    if (data >= body.size() - end - 2) return false;
    at = end + 2 + data;
    if (body.substr(at, 2) != "\r\n") return true;
    at += 2;
  }
  return false;
}

void compare(const std::string& body) {
  const Reading a = ours(body);
  const Reading b = theirs(body);
  if (a.done) {
    EXPECT_TRUE(b.done) << body;
    EXPECT_EQ(a.size, b.size) << body;
    EXPECT_EQ(a.data, b.data) << body;
  } else if (b.done) {
    EXPECT_TRUE(a.bad) << body;
    EXPECT_TRUE(only_theirs_may_take(body)) << body;
  }
}

const std::vector<std::string>& bodies() {
  static const std::vector<std::string> all = {
      "0\r\n\r\n",
      "5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n",
      "0000A\r\n0123456789\r\n1\r\nx\r\n00\r\n\r\n",
      "3;a=b;c=\"d\"\r\na\r\n\r\n2\r\n\r\n\r\n0;e\r\nX-T: v\r\nX-U:\r\n\r\n",
      "21\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
  };
  return all;
}

TEST(ChunkScannerDifferential, GoodBodiesAreReadTheSame) {
  for (const std::string& body : bodies()) {
    EXPECT_TRUE(ours(body).done) << body;
    EXPECT_TRUE(theirs(body).done) << body;
    compare(body);
  }
}

// Every byte replaced, doubled or left out, and some thousand bodies with several such faults.
TEST(ChunkScannerDifferential, FaultyBodiesAreReadTheSameOrRefusedByOursAlone) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBytes = "\r\n\t \0:;=\"0159afAFgxX-+\x01\x7f\x80\xff"sv;
  for (const std::string& body : bodies()) {
    for (std::size_t at = 0; at < body.size(); ++at) {
      for (const char byte : kBytes) {
        std::string faulty = body;
        faulty[at] = byte;
        compare(faulty);
        faulty.insert(at, 1, body[at]);
        compare(faulty);
      }
      std::string shorter = body;
      shorter.erase(at, 1);
      compare(shorter);
    }
  }
  Rng rng(11);
  for (int i = 0; i < 50'000; ++i) {
    std::string body = bodies()[rng.below(bodies().size())];
    const std::string& other = bodies()[rng.below(bodies().size())];
    for (std::uint64_t faults = 1 + rng.below(4); faults > 0; --faults) {
      const std::size_t at = rng.below(body.size());
      const std::size_t from = rng.below(other.size());
      switch (rng.below(3)) {
        case 0:
          body[at] = kBytes[rng.below(kBytes.size())];
          break;
        case 1:
          body.erase(at, 1 + rng.below(3));
          if (body.empty()) body = "0";
          break;
        default:
          body.insert(at, other.substr(from, other.find('\n', from) - from + 1));
          break;
      }
    }
    compare(body);
  }
}

}  // namespace
}  // namespace pointsman
