#pragma once

#include <cstddef>
#include <cstdint>

#include <nghttp2/nghttp2.h>

namespace pointsman {

class Http2Connection;

// Between nghttp2, which calls functions with a pointer, and a connection. None of these calls
// anything that serves a request: what they find is told to it in the reactor's next round.
class Http2Callbacks {
 public:
  // A server's session, to be deleted by the caller.
  static nghttp2_session* new_session(Http2Connection& connection);

  // Asked for when the windows are open: the stream's next data, as much as is at hand.
  static ssize_t next_data(nghttp2_session* session, std::int32_t id, std::uint8_t* buffer,
                           std::size_t length, std::uint32_t* flags, nghttp2_data_source* source,
                           void* connection);

 private:
  static nghttp2_session_callbacks* make_callbacks();
  static nghttp2_option* make_options();

  static int begin_frame(nghttp2_session* session, const nghttp2_frame_hd* frame, void* connection);
  static int begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int header(nghttp2_session* session, const nghttp2_frame* frame, const std::uint8_t* name,
                    std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                    std::uint8_t flags, void* connection);
  static int invalid_header(nghttp2_session* session, const nghttp2_frame* frame,
                            const std::uint8_t* name, std::size_t name_size,
                            const std::uint8_t* value, std::size_t value_size, std::uint8_t flags,
                            void* connection);
  static int frame_received(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int invalid_frame(nghttp2_session* session, const nghttp2_frame* frame, int error,
                           void* connection);
  static int data_chunk(nghttp2_session* session, std::uint8_t flags, std::int32_t id,
                        const std::uint8_t* data, std::size_t size, void* connection);
  static int stream_closed(nghttp2_session* session, std::int32_t id, std::uint32_t code,
                           void* connection);
  static int frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int send_data(nghttp2_session* session, nghttp2_frame* frame, const std::uint8_t* header,
                       std::size_t length, nghttp2_data_source* source, void* connection);
};

}  // namespace pointsman
