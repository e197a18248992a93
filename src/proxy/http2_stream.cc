#include "proxy/http2_stream.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "proxy/http2_connection.h"

namespace pointsman {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

std::size_t copy_out(std::string_view from, std::size_t& at, char* to, std::size_t room) {
  const std::size_t count = std::min(room, from.size() - at);
  std::memcpy(to, from.data() + at, count);
  at += count;
  return count;
}

IoResult broken() {
  return {IoResult::Status::kError, 0, std::make_error_code(std::errc::connection_reset)};
}

}  // namespace

Http2Stream::Http2Stream(Http2Connection& connection, Poller& poller, std::int32_t id)
    : Stream(poller), connection_(&connection), id_(id), end_timer_([this] {
        if (connection_ != nullptr) connection_->reset_stream(*this, Http2Connection::Why::kCut);
      }) {
  open_ = true;
  writable_ = true;
}

void Http2Stream::on_ready(std::uint32_t /*events*/) {
  tell();
}

// --- the request ---------------------------------------------------------------------------------

void Http2Stream::take_head(std::string head, Http2Head::Body body, bool asks_for_head) {
  framing_ = std::move(head);
  chunked_ = body == Http2Head::Body::kChunked;
  asks_for_head_ = asks_for_head;
  readable_ = true;
}

void Http2Stream::take_data(std::string_view data) {
  if (!open_ || answer_ended_) return connection_->consumed(*this, data.size());
  data_ += data;
  readable_ = true;
  poller_.soon(*this);
}

void Http2Stream::request_ended() {
  request_done_ = true;
  if (!open_ || !chunked_) return;
  readable_ = true;
  poller_.soon(*this);
}

IoResult Http2Stream::read(char* to, std::size_t size) {
  if (gone_) return broken();
  if (answer_ended_) return {IoResult::Status::kEnd};
  std::size_t got = 0;
  std::size_t of_data = 0;
  while (got < size) {
    if (framing_at_ < framing_.size()) {
      got += copy_out(framing_, framing_at_, to + got, size - got);
    } else if (chunk_left_ > 0) {
      const std::size_t count = copy_out(std::string_view(data_).substr(0, data_at_ + chunk_left_),
                                         data_at_, to + got, size - got);
      chunk_left_ -= count;
      of_data += count;
      got += count;
    } else if (!next_framing()) {
      break;
    }
  }
  if (of_data > 0) connection_->consumed(*this, of_data);
  if (data_at_ == data_.size()) {
    std::string().swap(data_);
    data_at_ = 0;
  } else if (data_at_ >= data_.size() / 2) {
    data_.erase(0, data_at_);
    data_at_ = 0;
  }
  if (got > 0) return {IoResult::Status::kOk, got};
  readable_ = false;
  return {IoResult::Status::kWouldBlock};
}

// What stands before the next bytes of data_, or at their end. False: nothing more is here.
bool Http2Stream::next_framing() {
  const std::size_t waiting = data_.size() - data_at_;
  const bool end = chunked_ && request_done_ && !last_chunk_ && waiting == 0;
  if (waiting == 0 && !end) return false;
  chunk_left_ = waiting;
  if (!chunked_) return true;
  framing_ = chunk_open_ ? kLineEnd : std::string_view();
  framing_at_ = 0;
  char size[16];
  framing_.append(size, std::to_chars(size, size + sizeof size, waiting, 16).ptr);
  framing_ += kLineEnd;
  chunk_open_ = true;
  if (!end) return true;
  last_chunk_ = true;
  framing_ += request_trailers_;
  framing_ += kLineEnd;
  return true;
}

void Http2Stream::release_input() {
  if (data_.size() > data_at_) connection_->consumed(*this, data_.size() - data_at_);
  std::string().swap(data_);
  std::string().swap(framing_);
  data_at_ = framing_at_ = chunk_left_ = 0;
}

// --- the answer ----------------------------------------------------------------------------------

IoResult Http2Stream::write(std::string_view first, std::string_view second) {
  if (gone_ || !open_) return broken();
  std::size_t taken = take(first);
  if (taken == first.size()) taken += take(second);
  // Behind the end of a whole answer nothing belongs to anybody.
  if (gone_) return broken();
  if (connection_ == nullptr) return {IoResult::Status::kOk, first.size() + second.size()};
  if (taken < first.size() + second.size()) {
    writable_ = false;
    waits_for_room_ = connection_->await_room(*this);
    if (taken == 0) return {IoResult::Status::kWouldBlock};
  }
  return {IoResult::Status::kOk, taken};
}

void Http2Stream::may_write() {
  waits_for_room_ = false;
  writable_ = true;
  poller_.soon(*this);
}

// Less than all of it where no more may go out now.
std::size_t Http2Stream::take(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && connection_ != nullptr && !gone_) {
    // No more payload than this lies in as many bytes of the answer.
    const std::size_t room = connection_->room(*this, part_ != Part::kHead);
    if (room == 0) break;
    const std::string_view rest = bytes.substr(taken);
    if (part_ == Part::kHead) {
      taken += take_answer_head(rest);
    } else {
      taken += take_answer_body(rest.substr(0, room));
    }
  }
  return taken;
}

std::size_t Http2Stream::take_answer_head(std::string_view bytes) {
  const std::size_t before = answer_head_.size();
  if (before > 0) answer_head_ += bytes;
  ResponseHeadParser& parser = connection_->response_parser();
  parser.reset();
  const HeadResult result = parser.parse(before > 0 ? std::string_view(answer_head_) : bytes);
  if (result.status == HeadResult::kNeedMore) {
    if (before == 0) answer_head_ = bytes;
    return bytes.size();
  }
  const ResponseHead& head = parser.head();
  // Our own parser has read the replica's head before; a switch of protocols nobody can ask for.
  if (result.status == HeadResult::kBad || head.status() == 101) {
    reset_now();
    return bytes.size();
  }
  if (!head.interim()) {
    switch (head.body_kind(asks_for_head_ ? "HEAD" : "GET")) {
      case BodyKind::kNone:
        part_ = Part::kDone;
        break;
      case BodyKind::kLength:
        left_ = head.content_length().value_or(0);
        part_ = left_ > 0 ? Part::kLength : Part::kDone;
        break;
      case BodyKind::kChunked:
        part_ = Part::kChunked;
        break;
      case BodyKind::kUntilClose:
        part_ = Part::kUntilClose;
        break;
    }
    answer_ended_ = part_ == Part::kDone;
  }
  answered_ = true;
  connection_->submit_head(*this, head, answer_ended_);
  if (answer_ended_) answer_complete();
  std::string().swap(answer_head_);
  return result.size - before;
}

std::size_t Http2Stream::take_answer_body(std::string_view bytes) {
  switch (part_) {
    case Part::kLength: {
      const std::string_view part = bytes.substr(0, std::min<std::uint64_t>(left_, bytes.size()));
      left_ -= part.size();
      if (left_ == 0) part_ = Part::kDone;
      answer_ended_ = part_ == Part::kDone;
      send_data(part);
      if (answer_ended_) answer_complete();
      return part.size();
    }
    case Part::kChunked: {
      const std::size_t taken = chunks_.feed(
          bytes, [this](std::string_view data) { send_data(data); },
          [this](std::string_view trailers) { answer_trailers_ += trailers; });
      if (chunks_.bad()) {
        reset_now();
        return bytes.size();
      }
      if (!chunks_.done()) return taken;
      part_ = Part::kDone;
      answer_ended_ = true;
      send_data({});
      answer_complete();
      return taken;
    }
    case Part::kUntilClose:
      send_data(bytes);
      return bytes.size();
    case Part::kHead:
    case Part::kDone:
      break;
  }
  return bytes.size();  // behind the answer's end: belongs to nothing
}

void Http2Stream::send_data(std::string_view data) {
  if (gone_) return;
  outgoing_ = data;
  connection_->send_data(*this);
  outgoing_ = {};
}

// Nothing more is read from here: whoever reads sees the end.
void Http2Stream::answer_complete() {
  readable_ = true;
  poller_.soon(*this);
}

void Http2Stream::end_sent() {
  end_sent_ = true;
  end_timer_.cancel();
  if (!open_) stop_request();
}

// RFC 9113, 8.1: the answer is whole, the rest of the request is not wanted.
void Http2Stream::stop_request() {
  if (known_ && !request_done_) {
    connection_->reset_stream(*this, Http2Connection::Why::kNotNeeded);
  }
}

void Http2Stream::shutdown_send() {
  if (gone_ || !open_ || answer_ended_) return;
  if (part_ != Part::kUntilClose) return reset_now();
  part_ = Part::kDone;
  answer_ended_ = true;
  send_data({});
  answer_complete();
}

// --- the end -------------------------------------------------------------------------------------

void Http2Stream::close() {
  if (!open_) return;
  shutdown_send();
  leave();
  if (gone_) return;
  if (end_sent_) return stop_request();
  connection_->await_end(end_timer_);
}

void Http2Stream::reset() {
  if (!open_) return;
  if (!end_sent_) reset_now();
  leave();
}

void Http2Stream::reset_now() {
  if (gone_) return;
  connection_->reset_stream(*this, Http2Connection::Why::kCut);
  gone();
}

void Http2Stream::forget() {
  known_ = false;
  if (!end_sent_) gone();
  // Its reader may outlive the connection.
  release_input();
  connection_ = nullptr;
}

void Http2Stream::lose() {
  known_ = false;
  gone();
  connection_ = nullptr;
}

void Http2Stream::gone() {
  gone_ = ended_ = readable_ = writable_ = true;
  end_timer_.cancel();
  if (open_) poller_.soon(*this);
}

void Http2Stream::leave() {
  open_ = false;
  events_ = nullptr;
  ListLink<Poller::Source>::unlink();
  if (connection_ != nullptr) release_input();
}

}  // namespace pointsman
