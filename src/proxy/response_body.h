#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "http/chunk_scanner.h"
#include "http/head.h"

namespace pointsman {

// Follows the framing of one answer's body while it is passed on: the bytes stay as they came,
// chunk framing included, but for a client of HTTP/1.0, which gets the data alone.
class ResponseBody {
 public:
  void start(BodyKind kind, std::uint64_t length, bool without_chunks) {
    kind_ = kind;
    left_ = kind == BodyKind::kLength ? length : 0;
    without_chunks_ = without_chunks && kind == BodyKind::kChunked;
    done_ = kind == BodyKind::kNone || (kind == BodyKind::kLength && length == 0);
    payload_bytes_ = 0;
    chunks_.reset();
  }

  struct Taken {
    std::string_view forward;  // what the client gets for it; within `in` or `scratch`
    std::size_t consumed = 0;  // of `in`; less than all of it only where the body ended or is bad
  };

  // Takes the next bytes of the connection; calls payload(std::string_view) for each run of data.
  template <typename Payload>
  Taken take(std::string_view in, std::string& scratch, Payload&& payload) {
    switch (kind_) {
      case BodyKind::kNone:
        return {};
      case BodyKind::kLength: {
        const std::string_view part = in.substr(0, std::min<std::uint64_t>(left_, in.size()));
        left_ -= part.size();
        done_ = left_ == 0;
        return pass(part, payload);
      }
      case BodyKind::kUntilClose:
        return pass(in, payload);
      case BodyKind::kChunked:
        break;
    }
    if (done_) return {};
    std::string_view data;
    int runs = 0;
    const std::size_t consumed = chunks_.feed(in, [&](std::string_view run) {
      payload_bytes_ += run.size();
      payload(run);
      if (!without_chunks_) return;
      if (++runs == 1) {
        data = run;
      } else {
        if (runs == 2) scratch.assign(data);
        scratch += run;
      }
    });
    done_ = chunks_.done();
    if (without_chunks_) return {runs > 1 ? std::string_view(scratch) : data, consumed};
    return {in.substr(0, consumed), consumed};
  }

  // The whole body has been taken.
  [[nodiscard]] bool done() const { return done_; }
  // Broken framing: the rest has no meaning.
  [[nodiscard]] bool bad() const { return kind_ == BodyKind::kChunked && chunks_.bad(); }
  // The replica has closed: whether that is the body's regular end.
  [[nodiscard]] bool complete_at_close() const { return done_ || kind_ == BodyKind::kUntilClose; }
  [[nodiscard]] std::uint64_t payload_bytes() const { return payload_bytes_; }
  // A piece of our own may be put in here: between two chunks, or where no framing would show.
  [[nodiscard]] bool may_insert() const {
    return kind_ == BodyKind::kUntilClose ||
           (kind_ == BodyKind::kChunked && chunks_.at_chunk_boundary());
  }
  // An inserted piece, and what the client is sent, has chunk framing.
  [[nodiscard]] bool chunks_shown() const {
    return kind_ == BodyKind::kChunked && !without_chunks_;
  }
  [[nodiscard]] BodyKind kind() const { return kind_; }

 private:
  template <typename Payload>
  Taken pass(std::string_view part, Payload& payload) {
    if (!part.empty()) {
      payload_bytes_ += part.size();
      payload(part);
    }
    return {part, part.size()};
  }

  BodyKind kind_ = BodyKind::kNone;
  bool without_chunks_ = false;
  bool done_ = true;
  std::uint64_t left_ = 0;
  std::uint64_t payload_bytes_ = 0;
  ChunkScanner chunks_;
};

}  // namespace pointsman
