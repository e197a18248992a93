#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "http/head.h"

namespace pointsman {

// Strict scanners for HTTP/1.1 message heads (RFC 9112). What can be read in two ways is refused,
// never repaired: two lengths, a length beside a transfer coding, a coding other than one
// `chunked`, a bare CR or LF, white space before a colon, folded lines, control characters.
//
// Use: call parse() with all bytes from the start of the head, again with more after kNeedMore (at
// the same or another address). Lines that were complete are not looked at twice. After kDone the
// head is valid for as long as those bytes stay in place (or are named by Head::rebase); reset()
// before the next message.
//
// No allocation for up to 32 header lines, nor for more where the message before had as many. Not
// thread-safe. About 0.25 µs for a head of 477 bytes.
struct HeadResult {
  enum Status : std::uint8_t { kNeedMore, kDone, kBad };

  Status status = kNeedMore;
  // kDone: bytes that belong to the head; what follows is the body or the next message.
  std::size_t size = 0;
  // kBad: the answer for a client (400, 431 or 505), and what is wrong, for a person. For a
  // response every kBad is the replica's fault and the number has no meaning.
  int http_status = 0;
  std::string_view reason;
};

// What is wrong with a head of more lines than allowed; of the other answers 431, size is to blame.
inline constexpr std::string_view kTooManyHeaders = "too many headers";

class HeadParser {
 protected:
  explicit HeadParser(HeadLimits limits);

  enum class Step : std::uint8_t { kNext, kNeedMore, kBad };

  void resume(std::string_view buffer, Head& head);
  Step fail(int http_status, std::string_view reason);
  Step end_of_line(const char* p, std::size_t& next);
  // Header lines up to and with the empty one. kNext: the head is complete.
  Step parse_headers(Head& head);
  Step parse_header_line(Head& head);
  Step note_header(Head& head, HeaderId id, std::string_view value, HeadSpan span);
  Step note_connection(Head& head, std::string_view value);
  // Checks that concern several headers at once.
  Step check_framing(Head& head);
  HeadResult result(Step step, Head& head);
  void reset_state();

  HeadLimits limits_;
  std::string_view in_;  // the bytes of the present call, no more than max_size
  std::size_t at_ = 0;   // start of the first line not yet done
  int hosts_ = 0;
  int lengths_ = 0;
  int codings_ = 0;
  int connection_options_ = 0;
  bool start_line_done_ = false;
  bool says_close_ = false;
  bool says_keep_alive_ = false;
  bool says_upgrade_ = false;
  HeadSpan upgrade_;
  HeadSpan host_;
  HeadSpan expect_;
  HeadResult failure_;
};

class RequestHeadParser : public HeadParser {
 public:
  explicit RequestHeadParser(HeadLimits limits = {}) : HeadParser(limits) {}

  HeadResult parse(std::string_view buffer);
  void reset();

  [[nodiscard]] const RequestHead& head() const { return head_; }
  [[nodiscard]] RequestHead& head() { return head_; }

 private:
  Step parse_start_line();
  Step parse_target(std::size_t begin, std::size_t end);
  Step check();

  RequestHead head_;
};

class ResponseHeadParser : public HeadParser {
 public:
  explicit ResponseHeadParser(HeadLimits limits = {}) : HeadParser(limits) {}

  HeadResult parse(std::string_view buffer);
  void reset();

  [[nodiscard]] const ResponseHead& head() const { return head_; }
  [[nodiscard]] ResponseHead& head() { return head_; }

 private:
  Step parse_start_line();

  ResponseHead head_;
};

}  // namespace pointsman
