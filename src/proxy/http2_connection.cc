#include "proxy/http2_connection.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "base/ascii.h"
#include "proxy/http2_callbacks.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

constexpr Duration kLinger = std::chrono::seconds(2);
// For the client's acknowledgement that it has read the first GOAWAY.
constexpr Duration kDrainNotice = std::chrono::seconds(1);

// See docs/http2.md. Streams that ended before their answer began: a person who stops generating is
// not among them, a client that lost patience is.
constexpr std::int64_t kResetBurst = 500;
constexpr std::int64_t kResetsPerSecond = 50;
// Frames that carry neither a request nor data. Requests and data earn more.
constexpr std::int64_t kControlBurst = 1000;
constexpr std::int64_t kControlsPerSecond = 100;

std::uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
}

nghttp2_nv field(std::string_view name, std::string_view value, bool varies) {
  return {bytes_of(name), bytes_of(value), name.size(), value.size(),
          static_cast<std::uint8_t>(varies ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE)};
}

}  // namespace

Http2Connection::Http2Connection(ProxyShard& shard, StreamPtr transport,
                                 const asio::ip::tcp::endpoint& client, ConnectionPlace place)
    : shard_(shard),
      transport_(std::move(transport)),
      head_(std::min(shard.options().limits.head.max_size, kMaxHeadSize)),
      response_parser_(HeadLimits{kMaxHeadSize, kMaxLines}),
      resets_(kResetBurst, kResetsPerSecond, shard.reactor().coarse_now()),
      controls_(kControlBurst, kControlsPerSecond, shard.reactor().coarse_now()),
      client_(client),
      place_(std::move(place)),
      timer_([this] { on_timeout(); }),
      stall_timer_([this] { on_stall(); }),
      drain_timer_([this] { last_goaway(); }) {
  transport_->attach(*this);
  session_ = Http2Callbacks::new_session(*this);
  const auto head_size = static_cast<std::uint32_t>(shard.options().limits.head.max_size);
  const std::array<nghttp2_settings_entry, 4> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kMaxStreams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, head_size},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  }};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Http2Connection::~Http2Connection() {
  if (session_ != nullptr) nghttp2_session_del(session_);
}

void Http2Connection::start(std::string_view first) {
  const IntrusivePtr<Http2Connection> alive(this);
  flush_soon();
  if (!first.empty()) feed(first);
  update_timer();
  if (transport_->open()) transport_->want_read();
}

// --- what comes ----------------------------------------------------------------------------------

void Http2Connection::on_readable() {
  const IntrusivePtr<Http2Connection> alive(this);
  char* const buffer = shard_.read_buffer();
  const IoResult got = transport_->read(buffer, ProxyShard::kReadBuffer);
  switch (got.status) {
    case IoResult::Status::kOk:
      if (!lingering_) feed({buffer, got.bytes});
      break;
    case IoResult::Status::kWouldBlock:
      break;
    case IoResult::Status::kEnd:
    case IoResult::Status::kError:
      return lost();
  }
  transport_->want_read();
}

void Http2Connection::feed(std::string_view bytes) {
  const auto taken = nghttp2_session_mem_recv(session_, bytes_of(bytes), bytes.size());
  if (taken < 0 && misuse_.empty()) {
    misuse_ = broken_rule(taken == NGHTTP2_ERR_FLOODED);
  }
  if (!misuse_.empty()) return end_with(NGHTTP2_ENHANCE_YOUR_CALM);
  start_streams();
  update_timer();
  flush_soon();
}

// A request that was reset by the bytes behind it has cost nobody anything.
void Http2Connection::start_streams() {
  for (IntrusivePtr<Http2Stream>& stream : new_streams_) {
    if (stream->is_gone()) {
      stream->close();
    } else {
      ++requests_;
      shard_.serve_stream(StreamPtr(stream.get()), client_);
    }
  }
  new_streams_.clear();
  const std::uint32_t limit = shard_.options().limits.requests_per_connection;
  if (limit != 0 && requests_ >= limit && !draining_) {
    shard_.metrics().connections_used_up.add();
    drain();
  }
}

void Http2Connection::update_timer() {
  if (lingering_ || session_ == nullptr) return;
  const Wait wait = !settings_seen_      ? Wait::kSettings
                    : in_head_           ? Wait::kHead
                    : stream_count_ == 0 ? Wait::kIdle
                                         : Wait::kNothing;
  if (wait == waiting_for_) return;
  waiting_for_ = wait;
  const ProxyTimeouts& limits = shard_.options().timeouts;
  if (wait == Wait::kNothing) return timer_.cancel();
  shard_.arm(timer_, wait == Wait::kIdle ? limits.client_idle : limits.client_head);
}

void Http2Connection::on_timeout() {
  const IntrusivePtr<Http2Connection> alive(this);
  switch (waiting_for_) {
    case Wait::kLinger:
      return lost();
    case Wait::kSettings:
    case Wait::kHead:
      misuse_ = "head_timeout";
      break;
    case Wait::kIdle:
    case Wait::kNothing:
      break;
  }
  end_with(NGHTTP2_NO_ERROR);
}

// --- requests ------------------------------------------------------------------------------------

void Http2Connection::head_begins(std::int32_t id) {
  auto* const stream = new Http2Stream(*this, shard_.reactor().poller(), id);
  stream->add_reference();  // given back in stream_ended()
  streams_.push_back(*stream);
  ++stream_count_;
  shard_.metrics().http2_streams.add();
  nghttp2_session_set_stream_user_data(session_, id, stream);
}

void Http2Connection::head_complete(Http2Stream& stream, bool ended) {
  std::string head;
  if (malformed_ || !head_.finish(ended, head)) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id(), NGHTTP2_PROTOCOL_ERROR);
    return;
  }
  stream.take_head(std::move(head), head_.body(), head_.asks_for_head());
  new_streams_.emplace_back(&stream);
}

void Http2Connection::stream_ended(Http2Stream& stream) {
  if (!stream.answered() && !stream.is_gone()) refused();
  stream.forget();
  static_cast<ListLink<Http2Stream>&>(stream).unlink();
  --stream_count_;
  stream.drop_reference();
  flush_soon();
}

// A stream ended before its answer began: by the client, or by its breaking the rules.
void Http2Connection::refused() {
  shard_.metrics().http2_streams_unanswered.add();
  if (!resets_.take(1, shard_.reactor().coarse_now())) misuse("rapid_reset");
}

void Http2Connection::consumed(const Http2Stream& stream, std::size_t bytes) {
  if (session_ == nullptr) return;
  if (stream.known()) {
    nghttp2_session_consume(session_, stream.id(), bytes);
  } else {
    nghttp2_session_consume_connection(session_, bytes);
  }
  flush_soon();
}

// --- what a client may not do for ever -----------------------------------------------------------

// Of nghttp2's own finding.
std::string_view Http2Connection::broken_rule(bool flood) {
  if (flood) return "flood";
  return "protocol_error";
}

void Http2Connection::misuse(std::string_view kind) {
  if (misuse_.empty()) misuse_ = kind;
}

void Http2Connection::spend(std::int64_t amount, std::string_view kind) {
  if (!controls_.take(amount, shard_.reactor().coarse_now())) misuse(kind);
}

void Http2Connection::frame_begins(std::uint8_t type, std::uint8_t flags, std::size_t length) {
  constexpr std::int64_t kOfRequest = 2;
  constexpr std::int64_t kOfSettings = 10;
  constexpr std::size_t kMostContinuations = 7;
  switch (type) {
    case NGHTTP2_DATA:
      if (length == 0 && (flags & NGHTTP2_FLAG_END_STREAM) == 0) spend(1, "empty_frames");
      return;
    case NGHTTP2_HEADERS:
      continuations_ = 0;
      controls_.give(kOfRequest);
      return;
    case NGHTTP2_CONTINUATION:
      if (++continuations_ > kMostContinuations) misuse("continuation_flood");
      return;
    case NGHTTP2_SETTINGS:
      if ((flags & NGHTTP2_FLAG_ACK) == 0) spend(kOfSettings, "settings_flood");
      return;
    case NGHTTP2_PING:
      if ((flags & NGHTTP2_FLAG_ACK) == 0) spend(1, "ping_flood");
      return;
    case NGHTTP2_WINDOW_UPDATE:
      return spend(1, "window_update_flood");
    case NGHTTP2_PRIORITY:
      return spend(1, "priority_flood");
    case NGHTTP2_RST_STREAM:
      return spend(1, "reset_flood");
    default:
      return spend(1, "other_frames");
  }
}

// --- answers -------------------------------------------------------------------------------------

std::size_t Http2Connection::room(const Http2Stream& stream, bool data) const {
  const std::size_t waiting = out_.size() - out_at_;
  if (session_ == nullptr || waiting >= kOutLimit) return 0;
  const std::size_t room = kOutLimit - waiting;
  if (!data) return room;
  const std::int32_t window =
      std::min(nghttp2_session_get_remote_window_size(session_),
               nghttp2_session_get_stream_remote_window_size(session_, stream.id()));
  return window <= 0 ? 0 : std::min(room, static_cast<std::size_t>(window));
}

bool Http2Connection::await_room(const Http2Stream& stream) {
  if (room(stream, /*data=*/false) == 0) {
    any_waits_for_room_ = true;
    return true;
  }
  // Http2Callbacks::next_data() is called when both windows are open.
  nghttp2_session_resume_data(session_, stream.id());
  flush_soon();
  return false;
}

void Http2Connection::submit_head(Http2Stream& stream, const ResponseHead& head, bool last) {
  std::vector<nghttp2_nv> fields;
  fields.reserve(head.header_count() + 1);
  std::array<char, 3> status;
  std::to_chars(status.data(), status.data() + status.size(), head.status());
  fields.push_back(field(":status", {status.data(), status.size()}, false));
  names_.clear();
  names_.reserve(head.size());  // it may not move
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    const Header header = head.header(i);
    if (head.is_hop_by_hop(header)) continue;
    const std::size_t at = names_.size();
    for (const char c : header.name) names_ += ascii_lower(c);
    fields.push_back(field(std::string_view(names_).substr(at), header.value,
                           header.id == HeaderId::kXRequestId));
  }
  int failed = 0;
  if (head.interim()) {
    failed = nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id(), nullptr,
                                    fields.data(), fields.size(), nullptr);
  } else {
    const nghttp2_data_provider body = {{.ptr = &stream}, &Http2Callbacks::next_data};
    failed = nghttp2_submit_response(session_, stream.id(), fields.data(), fields.size(),
                                     last ? nullptr : &body);
  }
  if (failed != 0 && !over()) shard_.metrics().internal_errors.add();
  flush_soon();
}

void Http2Connection::send_data(Http2Stream& stream) {
  nghttp2_session_resume_data(session_, stream.id());
  write_frames(/*all=*/true);
  flush_soon();
  if (stream.outgoing().empty() || stream.is_gone() || over()) return;
  // room() promised that it fits.
  shard_.metrics().internal_errors.add();
  reset_stream(stream, Why::kCut);
}

// Nothing is read any more, and nothing but a GOAWAY sent: its streams are lost at the round's end.
bool Http2Connection::over() const {
  return nghttp2_session_want_read(session_) == 0;
}

void Http2Connection::reset_stream(Http2Stream& stream, Why why) {
  if (session_ == nullptr || !stream.known()) return;
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id(),
                            why == Why::kCut ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_NO_ERROR);
  flush_soon();
}

void Http2Connection::await_end(Timer& timer) {
  shard_.arm(timer, shard_.options().timeouts.client_stall);
}

// --- what goes -----------------------------------------------------------------------------------

void Http2Connection::flush_soon() {
  if (session_ != nullptr && !lingering_) shard_.reactor().poller().at_end(*this);
}

void Http2Connection::on_ready(std::uint32_t /*events*/) {
  flush();
}

void Http2Connection::on_writable() {
  flush();
}

// Of what nghttp2 has to say: all, or as much as there is room for. Whether there was any.
bool Http2Connection::write_frames(bool all) {
  bool any = false;
  while (all || out_.size() - out_at_ < kOutLimit) {
    const std::uint8_t* bytes = nullptr;
    const std::size_t before = out_.size();
    const auto size = nghttp2_session_mem_send(session_, &bytes);
    // It fails where there is no memory, and for nothing that is a peer's doing.
    if (size > 0) out_.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
    // Data goes into `out_` by itself (Http2Callbacks::send_data).
    any = any || out_.size() > before;
    if (size <= 0) break;
  }
  return any;
}

void Http2Connection::flush() {
  const IntrusivePtr<Http2Connection> alive(this);
  if (session_ == nullptr) return;
  for (bool more = true; more;) {
    more = !lingering_ && write_frames(/*all=*/false);
    if (!write_out()) return lost();
    if (!out_.empty()) break;
  }
  if (lingering_) {
    if (out_.empty()) transport_->shutdown_send();
    return;
  }
  if (!misuse_.empty()) return end_with(NGHTTP2_ENHANCE_YOUR_CALM);
  if (out_.size() - out_at_ < kOutLimit / 2) wake_writers();
  const bool ended = over() && nghttp2_session_want_write(session_) == 0;
  // With nothing to answer, the first of two GOAWAYs looks like the end.
  const bool first_of_two = draining_ && !last_goaway_sent_ && stream_count_ == 0;
  if (ended && out_.empty() && !first_of_two) return linger();
  update_timer();
}

// False: the connection is broken.
bool Http2Connection::write_out() {
  if (out_.empty()) return true;
  const IoResult sent = transport_->write(std::string_view(out_).substr(out_at_));
  if (sent.status == IoResult::Status::kError) return false;
  out_at_ += sent.bytes;
  if (out_at_ == out_.size()) {
    out_at_ = 0;
    // What one busy moment took is not kept for the hours of a stream.
    if (out_.capacity() > kOutLimit / 4) {
      std::string().swap(out_);
    } else {
      out_.clear();
    }
    stall_timer_.cancel();
    return true;
  }
  if (out_at_ >= out_.size() / 2) {
    out_.erase(0, out_at_);
    out_at_ = 0;
  }
  if (sent.bytes > 0 || !stall_timer_.armed()) {
    shard_.arm(stall_timer_, shard_.options().timeouts.client_stall);
  }
  transport_->want_write();
  return true;
}

void Http2Connection::wake_writers() {
  if (!any_waits_for_room_) return;
  any_waits_for_room_ = false;
  streams_.for_each([](Http2Stream& stream) {
    if (stream.waits_for_room()) stream.may_write();
  });
}

void Http2Connection::on_stall() {
  const IntrusivePtr<Http2Connection> alive(this);
  transport_->reset();
  lost();
}

// --- the end -------------------------------------------------------------------------------------

void Http2Connection::drain() {
  if (draining_ || lingering_ || session_ == nullptr) return;
  draining_ = true;
  // RFC 9113, 6.8: a first GOAWAY that refuses nothing yet; once the client must have seen it, the
  // last one says what was the last request.
  constexpr std::array<std::uint8_t, 8> kOpaque = {'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'};
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, kOpaque.data());
  shard_.arm(drain_timer_, kDrainNotice);
  flush_soon();
}

void Http2Connection::last_goaway() {
  if (last_goaway_sent_ || session_ == nullptr) return;
  last_goaway_sent_ = true;
  drain_timer_.cancel();
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
  flush_soon();
}

// Says why, as far as the client reads, and ends.
void Http2Connection::end_with(std::uint32_t code) {
  if (lingering_ || session_ == nullptr) return;
  if (!misuse_.empty()) shard_.metrics().http2_ended.add(misuse_);
  nghttp2_session_terminate_session(session_, code);
  write_frames(/*all=*/false);
  linger();
}

void Http2Connection::linger() {
  lingering_ = true;
  drop_streams();
  if (!write_out()) return lost();
  if (out_.empty()) transport_->shutdown_send();
  waiting_for_ = Wait::kLinger;
  shard_.arm(timer_, kLinger);
}

void Http2Connection::close_now() {
  const IntrusivePtr<Http2Connection> alive(this);
  if (session_ == nullptr) return;
  if (!lingering_) {
    // After the GOAWAY, resets of streams would not go.
    write_frames(/*all=*/false);
    nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR);
    write_frames(/*all=*/false);
    static_cast<void>(write_out());
  }
  lost();
}

void Http2Connection::drop_streams() {
  new_streams_.clear();
  while (Http2Stream* const stream = streams_.front()) {
    static_cast<ListLink<Http2Stream>&>(*stream).unlink();
    stream->lose();
    stream->drop_reference();
  }
  stream_count_ = 0;
}

void Http2Connection::lost() {
  if (session_ == nullptr) return;
  const IntrusivePtr<Http2Connection> alive(this);
  drop_streams();
  transport_->close();
  place_.give_back();
  static_cast<ListLink<Poller::Source>&>(*this).unlink();
  nghttp2_session_del(std::exchange(session_, nullptr));
  for (Timer* timer : {&timer_, &stall_timer_, &drain_timer_}) timer->cancel();
  shard_.http2_closed(*this);
}

}  // namespace pointsman
