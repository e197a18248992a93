#include "proxy/request_body.h"

#include <algorithm>
#include <cstring>

namespace pointsman {

void RequestBody::start(const RequestHead& head) {
  reset();
  chunked_ = head.chunked();
  length_ = left_ = head.content_length().value_or(0);
  complete_ = !head.has_body();
}

void RequestBody::release_memory() {
  blocks_.give_back(own_);
  size_ = excess_ = 0;
}

void RequestBody::reset() {
  release_memory();
  length_ = left_ = 0;
  chunked_ = moved_ = false;
  complete_ = held_ = true;
  chunks_.reset();
}

std::size_t RequestBody::follow(std::string_view in) {
  if (complete_) return 0;
  if (chunked_) {
    const std::size_t taken = chunks_.feed(in);
    complete_ = chunks_.done();
    return taken;
  }
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, in.size()));
  left_ -= taken;
  complete_ = left_ == 0;
  return taken;
}

RequestBody::Progress RequestBody::advance_in_place(std::string_view in, std::size_t room) {
  size_ += follow(in.substr(size_));
  if (progress() != Progress::kNeedMore || room > 0) return progress();
  // The input buffer is full. A stated length says at once whether holding makes sense.
  if (!chunked_ && length_ > max_held_) {
    held_ = false;
    return Progress::kTooLarge;
  }
  const std::string_view seen = in.substr(0, size_);
  const std::size_t wanted = std::max<std::size_t>(seen.size() * 2, 256 * 1024);
  if (!blocks_.grow(own_, chunked_ ? wanted : std::min<std::size_t>(wanted, length_))) {
    held_ = false;
    return Progress::kTooLarge;
  }
  std::memcpy(own_.data, seen.data(), seen.size());
  moved_ = true;
  return Progress::kNeedMore;
}

RequestBody::Progress RequestBody::advance_moved(std::size_t count) {
  const std::size_t taken = follow({own_.data + size_, count});
  size_ += taken;
  excess_ = count - taken;
  if (progress() != Progress::kNeedMore || room() > 0) return progress();
  return grow();
}

RequestBody::Progress RequestBody::grow() {
  std::size_t wanted = own_.capacity * 2;
  if (!chunked_) {
    wanted = std::min<std::size_t>(wanted, length_);
  } else if (chunks_.payload_bytes() > max_held_ || size_ > 2 * max_held_) {
    // The second bound is for bodies cut into tiny chunks, whose framing outweighs them.
    held_ = false;
    return Progress::kTooLarge;
  }
  if (!blocks_.grow(own_, wanted)) {
    held_ = false;
    return Progress::kTooLarge;
  }
  return Progress::kNeedMore;
}

std::string_view RequestBody::payload(std::string_view in, std::string& scratch) const {
  const std::string_view framed = raw(in);
  if (!chunked_) return framed;
  scratch.clear();
  ChunkScanner scanner;
  scanner.feed(framed, [&scratch](std::string_view piece) { scratch += piece; });
  const std::size_t size = scratch.size();
  scratch.append(kReadPadding, '\0');
  return std::string_view(scratch).substr(0, size);
}

}  // namespace pointsman
