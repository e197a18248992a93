#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pointsman {

// Follows the framing of a chunked body (RFC 9112, 7.1) without copying or changing it, so that the
// same bytes can be sent on as they came.
//
// Strict: a size is 1 to 16 hexadecimal digits and fits 63 bits, every line ends in CRLF, the data
// is followed by CRLF, trailers are well-formed headers. Extensions are accepted and bounded.
//
// Trailers may be held to RFC 9110, 6.5.1: fields that say how a message is framed, routed,
// authenticated or read (kept in kHeadOnlyFields of the source) belong in the head, and as trailers
// are bad.
//
// The answer does not depend on how the bytes are cut into pieces. No allocation. Not thread-safe.
class ChunkScanner {
 public:
  static constexpr std::size_t kMaxExtension = 1024;      // bytes on one size line
  static constexpr std::size_t kMaxTrailers = 16 * 1024;  // bytes of all trailer lines

  enum class Trailers : std::uint8_t { kAny, kNoHeadFields };

  explicit ChunkScanner(Trailers trailers = Trailers::kAny) : trailers_(trailers) {}

  // Consumes bytes of `in`; returns how many belong to this body. Stops behind the last chunk's
  // trailers, or at the byte that is wrong.
  std::size_t feed(std::string_view in) {
    return feed(in, [](std::string_view) {});
  }

  // Likewise, and calls payload(std::string_view) for each run of body data, in order. The views
  // lie within `in`.
  template <typename Payload>
  std::size_t feed(std::string_view in, Payload&& payload) {
    std::size_t at = 0;
    while (at < in.size() && state_ != State::kDone && state_ != State::kBad) {
      if (state_ == State::kData) {
        const std::size_t run =
            left_ < in.size() - at ? static_cast<std::size_t>(left_) : in.size() - at;
        payload(in.substr(at, run));
        payload_bytes_ += run;
        left_ -= run;
        at += run;
        if (left_ == 0) state_ = State::kDataCr;
      } else {
        at += frame(in.substr(at));
      }
    }
    return at;
  }

  [[nodiscard]] bool done() const { return state_ == State::kDone; }
  // Sticky. The connection must be closed and never used again.
  [[nodiscard]] bool bad() const { return state_ == State::kBad; }
  // What is wrong, for a person; of bad().
  [[nodiscard]] std::string_view problem() const {
    return head_field_ ? "a trailer that may stand in the head only"
                       : "the body's chunk framing is broken";
  }
  // Between two chunks, or before the first: a further whole chunk may be put in here.
  [[nodiscard]] bool at_chunk_boundary() const { return state_ == State::kSize && digits_ == 0; }
  // The last chunk has been read and trailers (or the final CRLF) are awaited.
  [[nodiscard]] bool in_trailers() const {
    return state_ >= State::kTrailerStart && state_ <= State::kFinalLf;
  }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }

  void reset() { *this = ChunkScanner(trailers_); }

 private:
  enum class State : std::uint8_t {
    kSize,
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailerStart,
    kTrailerName,
    kTrailerValue,
    kTrailerLf,
    kFinalLf,
    kDone,
    kBad,
  };

  // Consumes framing bytes until data begins, the body ends, or `in` is used up.
  std::size_t frame(std::string_view in);
  State step(char c);
  State trailer_named();

  static constexpr std::size_t kLongestHeadField = 19;

  Trailers trailers_;
  State state_ = State::kSize;
  std::uint8_t digits_ = 0;
  std::uint8_t name_size_ = 0;                      // of the present trailer, as far as it is kept
  bool head_field_ = false;                         // a trailer was refused for its name
  std::array<char, kLongestHeadField + 1> name_{};  // of the present trailer
  std::uint16_t line_bytes_ = 0;                    // of the present extension, or of all trailers
  std::uint64_t left_ = 0;  // the size read so far, then the data still to come
  std::uint64_t payload_bytes_ = 0;
};

}  // namespace pointsman
