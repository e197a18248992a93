#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/chunk_scanner.h"
#include "http/head.h"
#include "proxy/body_blocks.h"
#include "proxy/input_buffer.h"

namespace pointsman {

// The body of one request as it comes in: follows its framing, and holds its bytes, framing
// included, so that they can be read for features and sent again on a retry.
//
// Bytes lie in the connection's input buffer, behind the head, for as long as they fit there;
// beyond that they move to memory of their own, which is taken from BodyMemory. A body over the
// limit, or for which no memory is left, is not held: it streams through, `held()` turns false, and
// what was seen so far is all that features see of it.
class RequestBody {
 public:
  enum class Progress : std::uint8_t {
    kNeedMore,  // read more: into the input buffer, or to tail() where moved() says so
    kComplete,
    kTooLarge,  // it will not be held; stream it through
    kBad,       // broken framing; the connection must be closed
  };

  RequestBody(BodyBlocks& blocks, std::size_t max_held) : blocks_(blocks), max_held_(max_held) {}
  ~RequestBody() { reset(); }
  RequestBody(const RequestBody&) = delete;
  RequestBody& operator=(const RequestBody&) = delete;

  void start(const RequestHead& head);
  void reset();
  // Gives the held bytes back; what is known of the body stays. For when no retry can follow.
  void release_memory();

  // `in`: all bytes behind the head in the input buffer; the first seen() of them were shown
  // before. Only while !moved(). `room`: how many more fit into the input buffer.
  Progress advance_in_place(std::string_view in, std::size_t room);

  // Memory of its own, with at least one byte of room at tail().
  [[nodiscard]] bool moved() const { return moved_; }
  [[nodiscard]] char* tail() { return own_.data + size_; }
  [[nodiscard]] std::size_t room() const {
    const std::size_t room = own_.capacity - size_;
    return chunked_ ? room : static_cast<std::size_t>(std::min<std::uint64_t>(room, left_));
  }
  // `count` bytes were read to tail(). Bytes behind the body's end are left in excess().
  Progress advance_moved(std::size_t count);
  // Bytes of the next request that were read to tail(); valid until the next call of anything.
  [[nodiscard]] std::string_view excess() const {
    return excess_ == 0 ? std::string_view() : std::string_view(own_.data + size_, excess_);
  }

  // Follows bytes that are streamed through; returns how many belong to the body.
  std::size_t follow(std::string_view in);

  // The body's bytes seen so far, with their framing; `in` as for advance_in_place().
  [[nodiscard]] std::string_view raw(std::string_view in) const {
    return moved_ ? std::string_view(own_.data, size_) : in.substr(0, size_);
  }
  // The same without chunk framing: a view where there is none, else a copy in `scratch`. At least
  // kReadPadding readable bytes follow.
  [[nodiscard]] std::string_view payload(std::string_view in, std::string& scratch) const;

  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] bool bad() const { return chunked_ && chunks_.bad(); }
  // Of bad(), for a person.
  [[nodiscard]] std::string_view problem() const { return chunks_.problem(); }
  [[nodiscard]] bool held() const { return held_; }
  [[nodiscard]] std::size_t seen() const { return size_; }  // raw bytes held
  [[nodiscard]] std::uint64_t payload_bytes() const {
    return chunked_ ? chunks_.payload_bytes() : length_ - left_;
  }

 private:
  Progress grow();
  Progress progress() const {
    return bad() ? Progress::kBad : complete_ ? Progress::kComplete : Progress::kNeedMore;
  }

  BodyBlocks& blocks_;
  const std::size_t max_held_;
  ChunkScanner chunks_{ChunkScanner::Trailers::kNoHeadFields};
  std::uint64_t length_ = 0;
  std::uint64_t left_ = 0;  // of a stated length
  bool chunked_ = false;
  bool complete_ = true;
  bool held_ = true;
  bool moved_ = false;
  BodyBlocks::Block own_;
  std::size_t size_ = 0;
  std::size_t excess_ = 0;
};

}  // namespace pointsman
