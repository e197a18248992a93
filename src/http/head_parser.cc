#include "http/head_parser.h"

#include <algorithm>
#include <cstring>

#include "base/ascii.h"
#include "http/field_chars.h"

namespace pointsman {
namespace {

// More options than this in Connection headers serve nobody, and each is compared with each header.
constexpr int kMaxConnectionOptions = 16;
constexpr std::ptrdiff_t kMaxMethod = 32;
constexpr std::ptrdiff_t kMaxName = 255;

HeadSpan span(std::size_t begin, std::size_t end) {
  return {static_cast<std::uint16_t>(begin), static_cast<std::uint16_t>(end - begin)};
}

// Letters, digits and the signs of a host, a port, or an address in brackets (RFC 3986, 3.2).
bool is_host_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c != '\0' && std::strchr("-._~%!$&'()*+,;=:[]", c) != nullptr);
}

bool is_authority(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_host_char);
}

}  // namespace

HeadParser::HeadParser(HeadLimits limits) : limits_(limits) {
  limits_.max_size = std::min(limits_.max_size, kMaxHeadSize);
  limits_.max_headers = std::min(limits_.max_headers, kMaxHeaders);
}

void HeadParser::reset_state() {
  at_ = 0;
  hosts_ = lengths_ = codings_ = connection_options_ = 0;
  start_line_done_ = says_close_ = says_keep_alive_ = says_upgrade_ = false;
  upgrade_ = host_ = expect_ = HeadSpan{};
  failure_ = HeadResult{};
}

void HeadParser::resume(std::string_view buffer, Head& head) {
  in_ = buffer.substr(0, limits_.max_size);
  head.base_ = in_.data();
}

HeadParser::Step HeadParser::fail(int http_status, std::string_view reason) {
  failure_ = {HeadResult::kBad, 0, http_status, reason};
  return Step::kBad;
}

// `p` is where the text of a line stopped; the line has to end there.
HeadParser::Step HeadParser::end_of_line(const char* p, std::size_t& next) {
  const char* const end = in_.data() + in_.size();
  if (p == end) return Step::kNeedMore;
  if (*p == '\n') return fail(400, "a line ends in a bare line feed");
  if (*p != '\r') return fail(400, "a control character in the head");
  if (p + 1 == end) return Step::kNeedMore;
  if (p[1] != '\n') return fail(400, "a bare carriage return in the head");
  next = static_cast<std::size_t>(p + 2 - in_.data());
  return Step::kNext;
}

HeadParser::Step HeadParser::parse_headers(Head& head) {
  for (;;) {
    if (at_ == in_.size()) return Step::kNeedMore;
    if (in_[at_] == '\r' || in_[at_] == '\n') {
      std::size_t next = 0;
      const Step step = end_of_line(in_.data() + at_, next);
      if (step == Step::kNext) head.size_ = next;
      return step;
    }
    const Step step = parse_header_line(head);
    if (step != Step::kNext) return step;
  }
}

HeadParser::Step HeadParser::parse_header_line(Head& head) {
  const char* const base = in_.data();
  const char* const end = base + in_.size();
  const char* const name = base + at_;
  const char* const colon = skip_token(name, end);
  if (colon - name > kMaxName) {
    return fail(431, "a header name is too long");
  }
  if (colon == end) return Step::kNeedMore;
  if (*colon != ':') {
    if (*colon != ' ' && *colon != '\t')
      return fail(400, "a character not allowed in a header name");
    return fail(400, colon == name ? "a folded header line" : "white space in a header name");
  }
  if (colon == name) return fail(400, "a header without a name");

  const char* value = colon + 1;
  while (value < end && (*value == ' ' || *value == '\t')) ++value;
  const char* const stop = skip_value(value, end);
  std::size_t next = 0;
  const Step step = end_of_line(stop, next);
  if (step != Step::kNext) return step;
  const char* last = stop;
  while (last > value && (last[-1] == ' ' || last[-1] == '\t')) --last;

  if (head.lines_.size() == limits_.max_headers) return fail(431, kTooManyHeaders);
  Head::Line& line = head.lines_.emplace_back();
  line.name_at = static_cast<std::uint16_t>(at_);
  line.name_size = static_cast<std::uint8_t>(colon - name);
  line.id = header_id({name, line.name_size});
  line.value = span(static_cast<std::size_t>(value - base), static_cast<std::size_t>(last - base));
  at_ = next;
  if (line.id == HeaderId::kOther) return Step::kNext;
  return note_header(head, line.id, head.text(line.value), line.value);
}

HeadParser::Step HeadParser::note_header(Head& head, HeaderId id, std::string_view value,
                                         HeadSpan span) {
  switch (id) {
    case HeaderId::kContentLength: {
      if (++lengths_ > 1) return fail(400, "more than one Content-Length");
      std::uint64_t length = 0;
      for (const char c : value) {
        if (!is_digit(c)) return fail(400, "Content-Length is not a number");
        const auto digit = static_cast<std::uint64_t>(c - '0');
        if (length > (UINT64_MAX - digit) / 10) return fail(400, "Content-Length is too large");
        length = length * 10 + digit;
      }
      if (value.empty()) return fail(400, "Content-Length is empty");
      head.content_length_ = length;
      head.has_content_length_ = true;
      return Step::kNext;
    }
    case HeaderId::kTransferEncoding:
      if (++codings_ > 1) return fail(400, "more than one Transfer-Encoding");
      if (!iequals(value, "chunked")) return fail(400, "a Transfer-Encoding other than chunked");
      head.chunked_ = true;
      return Step::kNext;
    case HeaderId::kConnection:
      return note_connection(head, value);
    case HeaderId::kHost:
      ++hosts_;
      host_ = span;
      return Step::kNext;
    case HeaderId::kUpgrade:
      upgrade_ = span;
      return Step::kNext;
    case HeaderId::kExpect:
      expect_ = span;
      return Step::kNext;
    case HeaderId::kContentType:
      head.content_type_ = span;
      return Step::kNext;
    case HeaderId::kContentEncoding:
      head.content_encoding_ = span;
      return Step::kNext;
    case HeaderId::kSteering:
      head.steers_ = true;
      return Step::kNext;
    case HeaderId::kXRequestId:
      if (head.request_id_.size == 0) head.request_id_ = span;
      return Step::kNext;
    default:
      return Step::kNext;
  }
}

HeadParser::Step HeadParser::note_connection(Head& head, std::string_view value) {
  for_each_element(value, [&](std::string_view option) {
    ++connection_options_;
    if (iequals(option, "close")) {
      says_close_ = true;
    } else if (iequals(option, "keep-alive")) {
      says_keep_alive_ = true;
    } else if (iequals(option, "upgrade")) {
      says_upgrade_ = true;
    } else {
      head.connection_names_headers_ = true;
    }
  });
  if (connection_options_ > kMaxConnectionOptions) return fail(400, "too many Connection options");
  return Step::kNext;
}

HeadParser::Step HeadParser::check_framing(Head& head) {
  if (head.chunked_ && head.has_content_length_) {
    return fail(400, "both Content-Length and Transfer-Encoding");
  }
  if (head.chunked_ && head.version_minor_ == 0) {
    return fail(400, "Transfer-Encoding in an HTTP/1.0 message");
  }
  head.keep_alive_ = !says_close_ && (head.version_minor_ > 0 || says_keep_alive_);
  if (says_upgrade_ && head.version_minor_ > 0) head.upgrade_ = upgrade_;
  return Step::kNext;
}

HeadResult HeadParser::result(Step step, Head& head) {
  if (step == Step::kNeedMore) {
    if (in_.size() == limits_.max_size) step = fail(431, "the head is too large");
  }
  switch (step) {
    case Step::kNext:
      return {HeadResult::kDone, head.size_, 0, {}};
    case Step::kNeedMore:
      return {};
    case Step::kBad:
      break;
  }
  return failure_;
}

void RequestHeadParser::reset() {
  reset_state();
  head_.clear();
}

HeadResult RequestHeadParser::parse(std::string_view buffer) {
  if (failure_.status == HeadResult::kBad) return failure_;
  resume(buffer, head_);
  Step step = Step::kNext;
  if (!start_line_done_) step = parse_start_line();
  if (step == Step::kNext) step = parse_headers(head_);
  if (step == Step::kNext) step = check();
  return result(step, head_);
}

HeadParser::Step RequestHeadParser::parse_start_line() {
  const char* const base = in_.data();
  const char* const end = base + in_.size();
  if (at_ == 0 && end - base >= 2 && base[0] == '\r' && base[1] == '\n') {
    at_ = 2;  // one empty line after the previous body is harmless (RFC 9112, 2.2)
  }
  if (at_ == 0 && in_ == "\r") return Step::kNeedMore;

  const char* const method = base + at_;
  const char* p = skip_token(method, end - method > kMaxMethod ? method + kMaxMethod : end);
  if (p == end) return Step::kNeedMore;
  if (p == method || *p != ' ') return fail(400, "not an HTTP request line");
  const char* const method_end = p++;

  const char* const target = p;
  while (p < end && *p > ' ' && *p < 0x7f && *p != '#') ++p;
  if (p == end) return Step::kNeedMore;
  if (p == target || *p != ' ') return fail(400, "a character not allowed in the request target");
  const char* const target_end = p++;

  // "HTTP/1.x", then the end of the line.
  constexpr std::string_view kVersion = "HTTP/";
  const std::string_view rest(p, static_cast<std::size_t>(end - p));
  if (rest.substr(0, 5) != kVersion.substr(0, std::min<std::size_t>(rest.size(), 5))) {
    return fail(400, "not an HTTP request line");
  }
  // The byte after the version belongs to the verdict: "HTTP/3.1" may yet become "HTTP/3.15".
  if (rest.size() < 9) return Step::kNeedMore;
  if (!is_digit(rest[5]) || rest[6] != '.' || !is_digit(rest[7]) || rest[8] >= ' ') {
    return fail(400, "not a valid HTTP version");
  }
  if (rest[5] != '1') return fail(505, "only HTTP/1.0 and HTTP/1.1 are served here");
  std::size_t next = 0;
  const Step step = end_of_line(p + 8, next);
  if (step != Step::kNext) return step;

  const auto at = [base](const char* q) { return static_cast<std::size_t>(q - base); };
  head_.method_ = span(at(method), at(method_end));
  head_.target_ = span(at(target), at(target_end));
  head_.version_minor_ = rest[7] == '0' ? 0 : 1;
  at_ = next;
  start_line_done_ = true;
  return parse_target(at(target), at(target_end));
}

// Origin form, absolute form, or the asterisk of OPTIONS. CONNECT's form is for tunnels only.
HeadParser::Step RequestHeadParser::parse_target(std::size_t begin, std::size_t end) {
  const std::string_view target = in_.substr(begin, end - begin);
  std::size_t path = begin;
  if (head_.method() == "CONNECT") return fail(400, "CONNECT is not served here");
  if (target.front() != '/') {
    if (target == "*" && head_.method() == "OPTIONS") {
      head_.path_ = head_.target_;
      return Step::kNext;
    }
    const std::size_t scheme = istarts_with(target, "http://")    ? 7
                               : istarts_with(target, "https://") ? 8
                                                                  : 0;
    if (scheme == 0) return fail(400, "the request target is neither a path nor an http URL");
    const std::size_t authority_end = std::min(target.find_first_of("/?", scheme), target.size());
    const std::string_view authority = target.substr(scheme, authority_end - scheme);
    if (authority.empty() || !is_authority(authority)) {
      return fail(400, "the request target has no valid host");
    }
    head_.host_ = span(begin + scheme, begin + authority_end);
    path = begin + authority_end;
  }
  const std::size_t question = std::min(in_.find('?', path), end);
  head_.path_ = span(path, question);
  head_.query_ = span(question, end);
  return Step::kNext;
}

HeadParser::Step RequestHeadParser::check() {
  if (hosts_ > 1) return fail(400, "more than one Host");
  if (hosts_ == 0 && head_.version_minor_ > 0) return fail(400, "no Host");
  if (!is_authority(head_.text(host_))) return fail(400, "an invalid Host");
  if (head_.host_.size == 0) head_.host_ = host_;
  head_.expect_continue_ = head_.version_minor_ > 0 && iequals(head_.text(expect_), "100-continue");
  return check_framing(head_);
}

void ResponseHeadParser::reset() {
  reset_state();
  head_.clear();
}

HeadResult ResponseHeadParser::parse(std::string_view buffer) {
  if (failure_.status == HeadResult::kBad) return failure_;
  resume(buffer, head_);
  Step step = Step::kNext;
  if (!start_line_done_) step = parse_start_line();
  if (step == Step::kNext) step = parse_headers(head_);
  if (step == Step::kNext) step = check_framing(head_);
  return result(step, head_);
}

HeadParser::Step ResponseHeadParser::parse_start_line() {
  const char* const base = in_.data();
  const char* const end = base + in_.size();
  // "HTTP/1.x NNN", then the end of the line, or a space and a reason that may be empty.
  constexpr std::string_view kShape = "HTTP/1.";
  constexpr std::size_t kFixed = 12;
  const std::size_t known = std::min(in_.size(), kShape.size());
  if (in_.substr(0, known) != kShape.substr(0, known)) return fail(400, "not an HTTP status line");
  if (in_.size() <= kFixed) return Step::kNeedMore;
  if (!is_digit(in_[7]) || in_[8] != ' ' || !is_digit(in_[9]) || !is_digit(in_[10]) ||
      !is_digit(in_[11])) {
    return fail(400, "not an HTTP status line");
  }
  const int status = (in_[9] - '0') * 100 + (in_[10] - '0') * 10 + (in_[11] - '0');
  if (status < 100) return fail(400, "an invalid status");
  const char* p = base + kFixed;
  if (*p != ' ' && *p != '\r' && *p != '\n') return fail(400, "not an HTTP status line");
  const char* const reason = p + (*p == ' ' ? 1 : 0);
  p = skip_value(reason, end);
  std::size_t next = 0;
  const Step step = end_of_line(p, next);
  if (step != Step::kNext) return step;
  head_.status_ = status;
  head_.reason_ = span(static_cast<std::size_t>(reason - base), static_cast<std::size_t>(p - base));
  head_.version_minor_ = in_[7] == '0' ? 0 : 1;
  at_ = next;
  start_line_done_ = true;
  return Step::kNext;
}

}  // namespace pointsman
