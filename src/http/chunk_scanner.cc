#include "http/chunk_scanner.h"

#include <algorithm>

#include "base/ascii.h"
#include "http/field_chars.h"

namespace pointsman {
namespace {

constexpr int kMaxDigits = 16;
// The largest size that another digit may be added to: the result stays below 2^63.
constexpr std::uint64_t kMaxBeforeDigit = (std::uint64_t{1} << 59) - 1;

// Framing, the connection, routing, authentication, and how the body is to be read.
constexpr std::string_view kHeadOnlyFields[] = {"authorization",
                                                "connection",
                                                "content-encoding",
                                                "content-length",
                                                "content-range",
                                                "content-type",
                                                "cookie",
                                                "expect",
                                                "host",
                                                "keep-alive",
                                                "max-forwards",
                                                "proxy-connection",
                                                "proxy-authorization",
                                                "te",
                                                "trailer",
                                                "transfer-encoding",
                                                "upgrade"};

}  // namespace

ChunkScanner::State ChunkScanner::trailer_named() {
  const std::string_view name(name_.data(), name_size_);
  head_field_ = trailers_ == Trailers::kNoHeadFields &&
                std::ranges::any_of(kHeadOnlyFields, [name](std::string_view field) {
                  return iequals(field, name);
                });
  return head_field_ ? State::kBad : State::kTrailerValue;
}

std::size_t ChunkScanner::frame(std::string_view in) {
  std::size_t at = 0;
  while (at < in.size()) {
    state_ = step(in[at]);
    if (state_ == State::kBad) return at;
    ++at;
    if (state_ == State::kData || state_ == State::kDone) return at;
  }
  return at;
}

ChunkScanner::State ChunkScanner::step(char c) {
  switch (state_) {
    case State::kSize: {
      const int digit = hex_value(c);
      if (digit >= 0) {
        if (digits_ == kMaxDigits || left_ > kMaxBeforeDigit) return State::kBad;
        ++digits_;
        left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
        return State::kSize;
      }
      if (digits_ == 0) return State::kBad;
      if (c == '\r') return State::kSizeLf;
      line_bytes_ = 0;
      return c == ';' ? State::kExtension : State::kBad;
    }
    case State::kExtension:
      if (c == '\r') return State::kSizeLf;
      return is_value_char(c) && ++line_bytes_ <= kMaxExtension ? State::kExtension : State::kBad;
    case State::kSizeLf:
      if (c != '\n') return State::kBad;
      digits_ = 0;
      line_bytes_ = 0;
      return left_ > 0 ? State::kData : State::kTrailerStart;
    case State::kData:
      break;  // feed() takes data itself
    case State::kDataCr:
      return c == '\r' ? State::kDataLf : State::kBad;
    case State::kDataLf:
      return c == '\n' ? State::kSize : State::kBad;
    case State::kTrailerStart:
      if (c == '\r') return State::kFinalLf;
      name_size_ = 0;
      [[fallthrough]];
    case State::kTrailerName:
      if (++line_bytes_ > kMaxTrailers) return State::kBad;
      if (is_token_char(c)) {
        if (name_size_ < name_.size()) name_[name_size_++] = c;
        return State::kTrailerName;
      }
      return c == ':' && state_ == State::kTrailerName ? trailer_named() : State::kBad;
    case State::kTrailerValue:
      if (c == '\r') return State::kTrailerLf;
      return is_value_char(c) && ++line_bytes_ <= kMaxTrailers ? State::kTrailerValue : State::kBad;
    case State::kTrailerLf:
      return c == '\n' ? State::kTrailerStart : State::kBad;
    case State::kFinalLf:
      return c == '\n' ? State::kDone : State::kBad;
    case State::kDone:
    case State::kBad:
      break;
  }
  return State::kBad;
}

}  // namespace pointsman
