// The head parsers beside another implementation, http_parser. What both take they must read the
// same. Ours may refuse more, for documented reasons alone; it takes more only where http_parser
// does not know the method, which is nothing that a proxy needs to know.

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <http_parser.h>

#include "base/rng.h"
#include "http/head_parser.h"
#include "support/test_data.h"

namespace pointsman {
namespace {

enum class Verdict { kTaken, kUnfinished, kRefused };

// What a head says, as one of the two reads it.
struct Reading {
  Verdict verdict = Verdict::kRefused;
  std::string reason;  // why it was refused

  std::string start;  // method and target, or the status
  unsigned version_minor = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<std::uint64_t> length;
  bool chunked = false;
  bool keep_alive = false;
  bool upgrade = false;
  bool comparable = true;

  [[nodiscard]] bool same_content(const Reading& other) const {
    return start == other.start && version_minor == other.version_minor &&
           headers == other.headers && length == other.length && chunked == other.chunked &&
           keep_alive == other.keep_alive && upgrade == other.upgrade;
  }
};

// http_parser does not take a tab for white space behind a length or a coding, nor in Connection,
// and there it misses what stands behind an empty element or behind a word that begins like one it
// knows ("keep-aliv"). RFC 9110, 5.6, allows all of these, so nothing is compared there.
bool misread_by_http_parser(const Head& head) {
  static const std::regex plain_list(
      "(close|keep-alive|upgrade|x-a)(, ?(close|keep-alive|upgrade|x-a))*", std::regex::icase);
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    const Header header = head.header(i);
    const bool framing =
        header.id == HeaderId::kContentLength || header.id == HeaderId::kTransferEncoding;
    if (framing && head.line(i).find('\t') != std::string_view::npos) return true;
    if (header.id == HeaderId::kConnection &&
        (head.line(i).find('\t') != std::string_view::npos ||
         !std::regex_match(std::string(header.value), plain_list))) {
      return true;
    }
  }
  return false;
}

std::string text_of(const Reading& reading) {
  std::string text = reading.start + " 1." + std::to_string(reading.version_minor);
  for (const auto& [name, value] : reading.headers) {
    text.append(" [").append(name).append("]=[").append(value).append("]");
  }
  if (reading.length) text += " length " + std::to_string(*reading.length);
  if (reading.chunked) text += " chunked";
  if (reading.keep_alive) text += " keep-alive";
  if (reading.upgrade) text += " upgrade";
  return text;
}

// --- http_parser's reading

struct Theirs {
  Reading reading;
  std::string url;
  bool in_value = true;
};

Theirs& state(http_parser* parser) {
  return *static_cast<Theirs*>(parser->data);
}
int on_url(http_parser* parser, const char* at, std::size_t size) {
  state(parser).url.append(at, size);
  return 0;
}
int on_name(http_parser* parser, const char* at, std::size_t size) {
  Theirs& theirs = state(parser);
  if (std::exchange(theirs.in_value, false)) theirs.reading.headers.emplace_back();
  theirs.reading.headers.back().first.append(at, size);
  return 0;
}
int on_value(http_parser* parser, const char* at, std::size_t size) {
  Theirs& theirs = state(parser);
  theirs.in_value = true;
  theirs.reading.headers.back().second.append(at, size);
  return 0;
}
int on_head(http_parser* parser) {
  Theirs& theirs = state(parser);
  Reading& reading = theirs.reading;
  reading.verdict = Verdict::kTaken;
  reading.version_minor = std::min<unsigned>(parser->http_minor, 1);  // what is above is as 1.1
  reading.chunked = (parser->flags & F_CHUNKED) != 0;
  if ((parser->flags & F_CONTENTLENGTH) != 0) reading.length = parser->content_length;
  if (parser->type == HTTP_REQUEST) {
    reading.start = http_method_str(static_cast<http_method>(parser->method));
    reading.start += " " + theirs.url;
    reading.keep_alive = http_should_keep_alive(parser) != 0;
    // An HTTP/1.0 client cannot ask for another protocol (RFC 9110, 7.8).
    reading.upgrade = parser->upgrade != 0 && parser->http_minor > 0;
  } else {
    reading.start = std::to_string(parser->status_code);
  }
  // It hands out values with the white space that stands behind them.
  for (auto& [name, value] : reading.headers) {
    value.erase(value.find_last_not_of(" \t") + 1);
  }
  return -1;  // the rest is not looked at
}

Reading theirs(http_parser_type type, const std::string& bytes) {
  http_parser_settings settings;
  http_parser_settings_init(&settings);
  settings.on_url = on_url;
  settings.on_header_field = on_name;
  settings.on_header_value = on_value;
  settings.on_headers_complete = on_head;
  http_parser parser;
  http_parser_init(&parser, type);
  Theirs result;
  parser.data = &result;
  http_parser_execute(&parser, &settings, bytes.data(), bytes.size());
  if (result.reading.verdict != Verdict::kTaken) {
    const http_errno error = HTTP_PARSER_ERRNO(&parser);
    if (error == HPE_OK) result.reading.verdict = Verdict::kUnfinished;
    result.reading.reason = http_errno_name(error);
  }
  return result.reading;
}

// --- our reading

template <typename Parser>
Reading ours(const std::string& bytes) {
  Parser parser;
  const HeadResult result = parser.parse(bytes);
  Reading reading;
  reading.reason = result.reason;
  if (result.status == HeadResult::kNeedMore) reading.verdict = Verdict::kUnfinished;
  if (result.status != HeadResult::kDone) return reading;
  reading.verdict = Verdict::kTaken;
  const auto& head = parser.head();
  reading.comparable = !misread_by_http_parser(head);
  reading.version_minor = static_cast<unsigned>(head.version_minor());
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    reading.headers.emplace_back(head.header(i).name, head.header(i).value);
  }
  reading.length = head.content_length();
  reading.chunked = head.chunked();
  if constexpr (std::is_same_v<Parser, RequestHeadParser>) {
    reading.start = std::string(head.method()) + " " + std::string(head.target());
    reading.keep_alive = head.keep_alive();
    reading.upgrade = !head.upgrade().empty();
  } else {
    reading.start = std::to_string(head.status());
  }
  return reading;
}

// What ours refuses and http_parser takes: all that can be read in two ways, and what is not
// served here (http/head_parser.h).
const std::set<std::string>& stricter_reasons() {
  static const std::set<std::string> reasons = {
      "a line ends in a bare line feed",
      "a bare carriage return in the head",
      "a control character in the head",
      "a folded header line",
      "white space in a header name",
      "a character not allowed in a header name",
      "more than one Content-Length",
      "Content-Length is empty",
      "both Content-Length and Transfer-Encoding",
      "more than one Transfer-Encoding",
      "a Transfer-Encoding other than chunked",
      "Transfer-Encoding in an HTTP/1.0 message",
      "no Host",
      "more than one Host",
      "an invalid Host",
      "a character not allowed in the request target",
      "the request target is neither a path nor an http URL",
      "the request target has no valid host",
      "CONNECT is not served here",
      "only HTTP/1.0 and HTTP/1.1 are served here",
      "not a valid HTTP version",
      "not an HTTP request line",
      "not an HTTP status line",
      "an invalid status",
  };
  return reasons;
}

// Holds the two readings of `bytes` against each other; `refused` collects the reasons for which
// ours alone refused.
template <typename Parser>
void compare(http_parser_type type, const std::string& bytes, std::set<std::string>& refused) {
  const Reading a = ours<Parser>(bytes);
  const Reading b = theirs(type, bytes);
  if (!a.comparable) return;
  if (a.verdict == Verdict::kTaken && b.verdict == Verdict::kTaken) {
    EXPECT_TRUE(a.same_content(b))
        << bytes << "ours:   " << text_of(a) << "\ntheirs: " << text_of(b);
  } else if (a.verdict == Verdict::kTaken) {
    EXPECT_EQ(b.reason, "HPE_INVALID_METHOD") << bytes;
  } else if (b.verdict == Verdict::kTaken) {
    EXPECT_EQ(a.verdict, Verdict::kRefused) << bytes;
    EXPECT_TRUE(stricter_reasons().contains(a.reason)) << bytes << a.reason;
    refused.insert(a.reason);
  }
}

std::vector<std::string> captured(std::string_view suffix) {
  std::vector<std::string> heads;
  for (const char* engine : {"vllm", "llama.cpp"}) {
    const std::filesystem::path folder = std::filesystem::path(POINTSMAN_TEST_DATA) / engine;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (!file.path().string().ends_with(suffix)) continue;
      heads.push_back(test_data(std::string(engine) + "/" + file.path().filename().string()));
    }
  }
  return heads;
}

const std::vector<std::string>& request_heads() {
  static const std::vector<std::string> heads = {
      "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
      "\r\nGET /a%20b?c=d&e HTTP/1.0\r\n\r\n",
      "POST /v1/chat/completions HTTP/1.1\r\nHost: a.b:80\r\nContent-Length: 0018\r\n\r\n",
      "POST /v1 HTTP/1.1\r\nhOsT:h\r\nTransfer-Encoding: Chunked\r\nExpect: 100-continue\r\n\r\n",
      "PUT http://h:1/p?q HTTP/1.1\r\nHost: h\r\nX-Empty:\r\nX-Wide: \t a \t b \t\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: [::1]:8\r\nConnection: close, x-a\r\nX-A: \"\xc3\xa9\"\r\n\r\n",
      "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: w\r\n\r\n",
      "GET / HTTP/1.0\r\nConnection: keep-alive\r\nX: ~!#$%&'*+-.^_`|\r\n\r\n",
  };
  return heads;
}

const std::vector<std::string>& response_heads() {
  static const std::vector<std::string> heads = {
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
      "HTTP/1.0 404 \r\nServer: x\r\n\r\n",
      "HTTP/1.1 200\r\ntransfer-encoding: chunked\r\nTrailer: a\r\n\r\n",
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
  };
  return heads;
}

// Heads that two programs could read in two ways, or that are not served here. http_parser takes
// most of them: the last word of each row says whether it does.
TEST(HeadParserDifferential, OnlyOursRefusesWhatIsAmbiguous) {
  struct Row {
    const char* bytes;
    const char* reason;
    bool they_take_it;
  };
  const std::vector<Row> rows = {
      {"GET / HTTP/1.1\nHost: h\n\n", "a line ends in a bare line feed", true},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "a folded header line", true},
      {"GET / HTTP/1.1\r\nHost: h\r\nX : a\r\n\r\n", "white space in a header name", true},
      {"GET / HTTP/1.1\r\nHost: h\r\nX: a\x01\r\n\r\n", "a control character in the head", false},
      {"GET / HTTP/1.1\r\n\r\n", "no Host", true},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "more than one Host", true},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "an invalid Host", true},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
       "more than one Content-Length", false},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       "both Content-Length and Transfer-Encoding", false},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
       "a Transfer-Encoding other than chunked", true},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
       "Transfer-Encoding in an HTTP/1.0 message", true},
      {"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT is not served here", true},
      {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", "only HTTP/1.0 and HTTP/1.1 are served here", true},
  };
  for (const Row& row : rows) {
    const Reading a = ours<RequestHeadParser>(row.bytes);
    EXPECT_EQ(a.verdict, Verdict::kRefused) << row.bytes;
    EXPECT_EQ(a.reason, row.reason) << row.bytes;
    EXPECT_TRUE(stricter_reasons().contains(row.reason));
    EXPECT_EQ(theirs(HTTP_REQUEST, row.bytes).verdict == Verdict::kTaken, row.they_take_it)
        << row.bytes;
  }
}

TEST(HeadParserDifferential, GoodHeadsAreReadTheSame) {
  const auto both_take = [](auto&& our_reading, http_parser_type type,
                            const std::vector<std::string>& heads) {
    for (const std::string& bytes : heads) {
      const Reading a = our_reading(bytes);
      const Reading b = theirs(type, bytes);
      EXPECT_EQ(a.verdict, Verdict::kTaken) << bytes << a.reason;
      EXPECT_EQ(b.verdict, Verdict::kTaken) << bytes << b.reason;
      EXPECT_TRUE(a.same_content(b)) << bytes << text_of(a) << '\n' << text_of(b);
    }
  };
  const std::vector<std::string> requests = captured(".request.http");
  const std::vector<std::string> responses = captured(".response.http");
  EXPECT_GT(requests.size(), 80U);
  EXPECT_GT(responses.size(), 80U);
  for (const auto& heads : {request_heads(), requests}) {
    both_take(&ours<RequestHeadParser>, HTTP_REQUEST, heads);
  }
  for (const auto& heads : {response_heads(), responses}) {
    both_take(&ours<ResponseHeadParser>, HTTP_RESPONSE, heads);
  }
}

// Every byte of a good head replaced, doubled or left out, and some thousand heads with several
// such faults.
template <typename Parser>
void compare_faulty(http_parser_type type, const std::vector<std::string>& heads) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBytes = "\r\n\t \0:;,/?#*%+-.0159aAzZ\x01\x7f\x80\xff"sv;
  std::set<std::string> refused;
  for (const std::string& head : heads) {
    for (std::size_t at = 0; at < head.size(); ++at) {
      for (const char byte : kBytes) {
        std::string bytes = head;
        bytes[at] = byte;
        compare<Parser>(type, bytes, refused);
        bytes.insert(at, 1, head[at]);
        compare<Parser>(type, bytes, refused);
      }
      std::string shorter = head;
      shorter.erase(at, 1);
      compare<Parser>(type, shorter, refused);
    }
  }
  Rng rng(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = heads[rng.below(heads.size())];
    const std::string& other = heads[rng.below(heads.size())];
    for (std::uint64_t faults = 1 + rng.below(4); faults > 0; --faults) {
      const std::size_t at = rng.below(bytes.size());
      const std::size_t from = rng.below(other.size());
      switch (rng.below(3)) {
        case 0:
          bytes[at] = kBytes[rng.below(kBytes.size())];
          break;
        case 1:
          bytes.erase(at, 1 + rng.below(3));
          if (bytes.empty()) bytes = "\r";
          break;
        default:  // a line or a part of one from elsewhere
          bytes.insert(at, other.substr(from, other.find('\n', from) - from + 1));
          break;
      }
    }
    compare<Parser>(type, bytes, refused);
  }
  EXPECT_GE(refused.size(), 4U) << "the faults reach the rules";
}

TEST(HeadParserDifferential, FaultyRequestsAreReadTheSameOrRefusedForADocumentedReason) {
  compare_faulty<RequestHeadParser>(HTTP_REQUEST, request_heads());
}

TEST(HeadParserDifferential, FaultyResponsesAreReadTheSameOrRefusedForADocumentedReason) {
  compare_faulty<ResponseHeadParser>(HTTP_RESPONSE, response_heads());
}

}  // namespace
}  // namespace pointsman
