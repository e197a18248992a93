#include "proxy/http2_callbacks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/ascii.h"
#include "proxy/http2_connection.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// Entries of one SETTINGS frame; there are seven that mean something.
constexpr std::size_t kMostSettings = 32;
// Acknowledgements that wait for a client that does not read.
constexpr std::size_t kMostAcknowledgements = 1000;
constexpr std::size_t kFrameHeader = 9;

Http2Connection& of(void* connection) {
  return *static_cast<Http2Connection*>(connection);
}

Http2Stream* stream_of(nghttp2_session* session, std::int32_t id) {
  return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session, id));
}

std::string_view text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// `lines`: a trailer section with its empty line. False: it has nothing to pass on.
bool submit_trailers(nghttp2_session* session, std::int32_t id, std::string_view lines,
                     ResponseHeadParser& parser) {
  // The parser of heads reads them: they follow the same rules.
  std::string head = "HTTP/1.1 200 OK\r\n";
  head += lines;
  parser.reset();
  if (parser.parse(head).status != HeadResult::kDone) return false;
  const ResponseHead& fields = parser.head();
  std::vector<nghttp2_nv> out;
  std::string names;
  names.reserve(head.size());
  for (std::size_t i = 0; i < fields.header_count(); ++i) {
    const Header field = fields.header(i);
    if (fields.is_hop_by_hop(field) || field.id == HeaderId::kContentLength) continue;
    const std::size_t at = names.size();
    for (const char c : field.name) names += ascii_lower(c);
    auto* const name = reinterpret_cast<std::uint8_t*>(names.data() + at);
    auto* const value = reinterpret_cast<std::uint8_t*>(const_cast<char*>(field.value.data()));
    out.push_back({name, value, field.name.size(), field.value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return !out.empty() && nghttp2_submit_trailer(session, id, out.data(), out.size()) == 0;
}

}  // namespace

nghttp2_session* Http2Callbacks::new_session(Http2Connection& connection) {
  static const nghttp2_session_callbacks* const callbacks = make_callbacks();
  static const nghttp2_option* const options = make_options();
  nghttp2_session* session = nullptr;
  nghttp2_session_server_new2(&session, callbacks, &connection, options);
  return session;
}

nghttp2_session_callbacks* Http2Callbacks::make_callbacks() {
  nghttp2_session_callbacks* made = nullptr;
  nghttp2_session_callbacks_new(&made);
  nghttp2_session_callbacks_set_on_begin_frame_callback(made, &begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(made, &begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(made, &header);
  nghttp2_session_callbacks_set_on_invalid_header_callback(made, &invalid_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(made, &frame_received);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(made, &invalid_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, &data_chunk);
  nghttp2_session_callbacks_set_on_stream_close_callback(made, &stream_closed);
  nghttp2_session_callbacks_set_on_frame_send_callback(made, &frame_sent);
  nghttp2_session_callbacks_set_send_data_callback(made, &send_data);
  return made;
}

nghttp2_option* Http2Callbacks::make_options() {
  nghttp2_option* made = nullptr;
  nghttp2_option_new(&made);
  // Windows open as requests are read.
  nghttp2_option_set_no_auto_window_update(made, 1);
  nghttp2_option_set_no_closed_streams(made, 1);
  nghttp2_option_set_max_settings(made, kMostSettings);
  nghttp2_option_set_max_outbound_ack(made, kMostAcknowledgements);
  return made;
}

// --- what comes ----------------------------------------------------------------------------------

int Http2Callbacks::begin_frame(nghttp2_session* /*session*/, const nghttp2_frame_hd* frame,
                                void* connection) {
  Http2Connection& self = of(connection);
  self.frame_begins(frame->type, frame->flags, frame->length);
  return self.misuse_.empty() ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

int Http2Callbacks::begin_headers(nghttp2_session* session, const nghttp2_frame* frame,
                                  void* connection) {
  Http2Connection& self = of(connection);
  self.in_head_ = true;
  self.malformed_ = false;
  if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
    self.head_.start();
    self.head_begins(frame->hd.stream_id);
  } else if (stream_of(session, frame->hd.stream_id) != nullptr) {
    self.head_.start_trailers();
  }
  return 0;
}

int Http2Callbacks::header(nghttp2_session* /*session*/, const nghttp2_frame* /*frame*/,
                           const std::uint8_t* name, std::size_t name_size,
                           const std::uint8_t* value, std::size_t value_size,
                           std::uint8_t /*flags*/, void* connection) {
  Http2Connection& self = of(connection);
  if (self.head_.list_size() > 4 * kMaxHeadSize || self.head_.field_count() > 2 * kMaxHeaders) {
    // Small on the line by the tables of HPACK, large here: more of it tells nothing new.
    self.misuse("header_bomb");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  if (!self.head_.add(text(name, name_size), text(value, value_size))) self.malformed_ = true;
  return 0;
}

int Http2Callbacks::invalid_header(nghttp2_session* /*session*/, const nghttp2_frame* /*frame*/,
                                   const std::uint8_t* /*name*/, std::size_t /*name_size*/,
                                   const std::uint8_t* /*value*/, std::size_t /*value_size*/,
                                   std::uint8_t /*flags*/, void* /*connection*/) {
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // the stream is reset, the field is not ignored
}

int Http2Callbacks::frame_received(nghttp2_session* session, const nghttp2_frame* frame,
                                   void* connection) {
  Http2Connection& self = of(connection);
  const bool ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
      self.settings_seen_ = true;
      return 0;
    case NGHTTP2_PING:
      if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && self.draining_) self.last_goaway();
      return 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      break;
    default:
      return 0;
  }
  Http2Stream* const stream = stream_of(session, frame->hd.stream_id);
  if (frame->hd.type == NGHTTP2_HEADERS) {
    self.in_head_ = false;
    if (stream == nullptr) return 0;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      self.head_complete(*stream, ended);
    } else if (self.malformed_) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream->id(), NGHTTP2_PROTOCOL_ERROR);
      return 0;
    } else {
      stream->take_trailers(self.head_.trailers());
    }
  }
  if (ended && stream != nullptr) stream->request_ended();
  return 0;
}

int Http2Callbacks::invalid_frame(nghttp2_session* session, const nghttp2_frame* frame,
                                  int /*error*/, void* connection) {
  // A stream that is known counts when it ends.
  if (stream_of(session, frame->hd.stream_id) == nullptr) of(connection).refused();
  return 0;
}

int Http2Callbacks::data_chunk(nghttp2_session* session, std::uint8_t /*flags*/, std::int32_t id,
                               const std::uint8_t* data, std::size_t size, void* connection) {
  Http2Stream* const stream = stream_of(session, id);
  if (stream != nullptr) {
    stream->take_data(text(data, size));
  } else {
    nghttp2_session_consume_connection(session, size);
  }
  static_cast<void>(connection);
  return 0;
}

int Http2Callbacks::stream_closed(nghttp2_session* session, std::int32_t id, std::uint32_t /*code*/,
                                  void* connection) {
  Http2Stream* const stream = stream_of(session, id);
  if (stream == nullptr) return 0;
  nghttp2_session_set_stream_user_data(session, id, nullptr);
  of(connection).stream_ended(*stream);
  return 0;
}

// --- what goes -----------------------------------------------------------------------------------

int Http2Callbacks::frame_sent(nghttp2_session* session, const nghttp2_frame* frame,
                               void* connection) {
  Http2Connection& self = of(connection);
  switch (frame->hd.type) {
    case NGHTTP2_GOAWAY:
      if (frame->goaway.error_code != NGHTTP2_NO_ERROR && self.misuse_.empty()) {
        self.shard_.metrics().http2_ended.add(
            Http2Connection::broken_rule(frame->goaway.error_code == NGHTTP2_ENHANCE_YOUR_CALM));
      }
      return 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      break;
    default:
      return 0;
  }
  if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
  if (Http2Stream* const stream = stream_of(session, frame->hd.stream_id)) stream->end_sent();
  return 0;
}

ssize_t Http2Callbacks::next_data(nghttp2_session* session, std::int32_t id,
                                  std::uint8_t* /*buffer*/, std::size_t length,
                                  std::uint32_t* flags, nghttp2_data_source* source,
                                  void* connection) {
  auto& stream = *static_cast<Http2Stream*>(source->ptr);
  const std::string_view outgoing = stream.outgoing();
  if (outgoing.empty() && !stream.ends_with_outgoing()) {
    stream.may_write();
    return NGHTTP2_ERR_DEFERRED;
  }
  const std::size_t taken = std::min(length, outgoing.size());
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (taken == outgoing.size() && stream.ends_with_outgoing()) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream.answer_trailers().size() > 2 &&
        submit_trailers(session, id, stream.answer_trailers(), of(connection).response_parser())) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    }
  }
  return static_cast<ssize_t>(taken);
}

// Straight from where the replica's bytes lie to what goes out.
int Http2Callbacks::send_data(nghttp2_session* /*session*/, nghttp2_frame* frame,
                              const std::uint8_t* header, std::size_t length,
                              nghttp2_data_source* source, void* connection) {
  constexpr std::int64_t kEarned = 4;
  constexpr std::size_t kSmall = 32;  // bytes; smaller pieces are what a client asks for that plays
  static_cast<void>(frame);
  Http2Connection& self = of(connection);
  auto& stream = *static_cast<Http2Stream*>(source->ptr);
  self.out_ += text(header, kFrameHeader);
  self.out_ += stream.outgoing().substr(0, length);
  stream.outgoing_sent(length);
  if (length >= kSmall) self.controls_.give(kEarned);
  return 0;
}

}  // namespace pointsman
