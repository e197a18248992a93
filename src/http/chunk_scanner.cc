#include "http/chunk_scanner.h"

#include "base/ascii.h"
#include "http/field_chars.h"

namespace pointsman {
namespace {

constexpr int kMaxDigits = 16;
// The largest size that another digit may be added to: the result stays below 2^63.
constexpr std::uint64_t kMaxBeforeDigit = (std::uint64_t{1} << 59) - 1;

}  // namespace

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
      [[fallthrough]];
    case State::kTrailerName:
      if (++line_bytes_ > kMaxTrailers) return State::kBad;
      if (is_token_char(c)) return State::kTrailerName;
      return c == ':' && state_ == State::kTrailerName ? State::kTrailerValue : State::kBad;
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
