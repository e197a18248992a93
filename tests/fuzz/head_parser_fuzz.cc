// Any bytes as a request head and as a response head. The answer must not depend on how the bytes
// come, what is accepted must be unambiguous, and what is written from it must be read the same.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "http/path.h"
#include "support/fuzz_check.h"

namespace pointsman {
namespace {

using test::check;

bool same(const HeadResult& a, const HeadResult& b) {
  return a.status == b.status && a.size == b.size && a.http_status == b.http_status &&
         a.reason == b.reason;
}

// The answer when the bytes come in three pieces, at another address each time.
template <typename Parser>
HeadResult parse_in_pieces(std::string_view bytes) {
  Parser parser;
  HeadResult result;
  for (const std::size_t size : {bytes.size() / 3, bytes.size() / 2, bytes.size()}) {
    const std::string copy(bytes.substr(0, size));
    result = parser.parse(copy);
    if (result.status != HeadResult::kNeedMore) break;
  }
  return result;
}

// What RFC 9112 asks of a head that is let through, found by another way than the parser's.
void check_accepted(const Head& head) {
  int lengths = 0;
  int codings = 0;
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    const Header header = head.header(i);
    lengths += iequals(header.name, "content-length") ? 1 : 0;
    codings += iequals(header.name, "transfer-encoding") ? 1 : 0;
    const std::string_view line = head.line(i);
    check(line.ends_with("\r\n"));
    check(line.substr(0, line.size() - 2).find_first_of(std::string_view("\r\n\0", 3)) ==
          std::string_view::npos);
    check(line.find(':') == header.name.size());
  }
  check(lengths + codings <= 1);
  check((lengths == 1) == head.content_length().has_value());
  check((codings == 1) == head.chunked());
}

void fuzz_request(std::string_view bytes) {
  RequestHeadParser parser;
  const HeadResult whole = parser.parse(bytes);
  check(same(whole, parse_in_pieces<RequestHeadParser>(bytes)));
  if (whole.status != HeadResult::kDone) return;
  const RequestHead& head = parser.head();
  check_accepted(head);
  std::string scratch;
  routing_path(head.path(), scratch);

  std::string out;
  write_request_head(
      head, {.authority = "a:1", .path_prefix = "", .request_id = "i", .authorization = ""}, out);
  RequestHeadParser again({.max_size = kMaxHeadSize, .max_headers = kMaxHeaders});
  const HeadResult second = again.parse(out);
  if (second.status == HeadResult::kBad && second.http_status == 431)
    return;  // has just grown past
  check(second.status == HeadResult::kDone && second.size == out.size());
  check(again.head().method() == head.method());
  check(again.head().path() == head.path() && again.head().query() == head.query());
  check(again.head().chunked() == head.chunked());
  check(again.head().content_length() == head.content_length());
  check(!again.head().request_id().empty());
}

void fuzz_response(std::string_view bytes) {
  ResponseHeadParser parser;
  const HeadResult whole = parser.parse(bytes);
  check(same(whole, parse_in_pieces<ResponseHeadParser>(bytes)));
  if (whole.status != HeadResult::kDone) return;
  const ResponseHead& head = parser.head();
  check_accepted(head);
  for (const bool http10 : {false, true}) {
    std::string out;
    const bool open = write_response_head(
        head, {.request_id = "i", .body = head.body_kind("GET"), .http10 = http10, .extra = ""},
        out);
    ResponseHeadParser again({.max_size = kMaxHeadSize, .max_headers = kMaxHeaders});
    const HeadResult second = again.parse(out);
    if (second.status == HeadResult::kBad && second.http_status == 431) continue;
    check(second.status == HeadResult::kDone && second.size == out.size());
    check(again.head().status() == head.status());
    if (!open) check(head.status() == 101 || !again.head().keep_alive());
    if (open) check(again.head().body_kind("GET") != BodyKind::kUntilClose);
  }
}

}  // namespace
}  // namespace pointsman

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pointsman::fuzz_request(bytes);
  pointsman::fuzz_response(bytes);
  return 0;
}
