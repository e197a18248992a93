#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "stepped_proxy.h"

namespace pointsman::test {

using Fields = std::vector<std::pair<std::string, std::string>>;

// What has come of one answer.
struct Http2Answer {
  Fields fields;
  std::vector<Fields> interim;
  Fields trailers;
  std::string data;
  std::size_t data_frames = 0;
  bool ended = false;                  // with END_STREAM
  std::optional<std::uint32_t> reset;  // the code of RST_STREAM
  bool closed = false;

  [[nodiscard]] std::string field(std::string_view name) const {
    for (const auto& [key, value] : fields) {
      if (key == name) return value;
    }
    return {};
  }
  [[nodiscard]] std::string status() const { return field(":status"); }
};

// A client of HTTP/2 over a connection of a SteppedProxy: nghttp2's own, driven by hand.
class Http2Client {
 public:
  struct Settings {
    std::uint32_t stream_window = 65'535;
    bool auto_window = true;      // windows open as data comes
    bool sends_settings = true;   // else nothing but the preface
    std::size_t piece = 1 << 20;  // bytes of one send
  };

  explicit Http2Client(SteppedProxy& proxy) : Http2Client(proxy, Settings()) {}
  Http2Client(SteppedProxy& proxy, Settings settings)
      : proxy_(proxy), settings_(settings), socket_(proxy.client()) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &on_close);
    nghttp2_option* options = nullptr;
    nghttp2_option_new(&options);
    nghttp2_option_set_max_send_header_block_length(options, 256 * 1024);
    nghttp2_option_set_no_auto_window_update(options, settings.auto_window ? 0 : 1);
    nghttp2_session_client_new2(&session_, callbacks, this, options);
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(callbacks);
    if (settings.sends_settings) {
      const nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                            settings.stream_window};
      nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &entry, 1);
    }
  }
  ~Http2Client() { nghttp2_session_del(session_); }
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;

  [[nodiscard]] nghttp2_session* session() { return session_; }
  [[nodiscard]] StepSocket& socket() { return socket_; }
  [[nodiscard]] Http2Answer& answer(std::int32_t id) { return answers_[id]; }
  [[nodiscard]] std::optional<std::uint32_t> goaway() const { return goaway_; }
  [[nodiscard]] std::int32_t last_stream() const { return last_stream_; }
  [[nodiscard]] std::size_t pings_answered() const { return pings_; }

  static Fields post(std::string_view path, Fields more = {}) {
    Fields fields = {{":method", "POST"},
                     {":scheme", "http"},
                     {":authority", "router.test"},
                     {":path", std::string(path)}};
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  }
  static Fields get(std::string_view path, Fields more = {}) {
    Fields fields = post(path, std::move(more));
    fields[0].second = "GET";
    return fields;
  }

  // `body`: nothing where the head ends the request. `open`: its end is to come by end_body().
  std::int32_t request(const Fields& fields, std::optional<std::string> body = std::nullopt,
                       bool open = false, Fields trailers = {}) {
    std::vector<nghttp2_nv> out = values(fields);
    auto source = std::make_unique<Body>();
    nghttp2_data_provider provider{};
    if (body || open) {
      source->left = body.value_or("");
      source->open = open;
      source->trailers = std::move(trailers);
      provider.source.ptr = source.get();
      provider.read_callback = &read_body;
    }
    const std::int32_t id = nghttp2_submit_request(session_, nullptr, out.data(), out.size(),
                                                   body || open ? &provider : nullptr, nullptr);
    bodies_[id] = std::move(source);
    return id;
  }
  void add_body(std::int32_t id, std::string_view bytes) {
    bodies_[id]->left += bytes;
    nghttp2_session_resume_data(session_, id);
  }
  void end_body(std::int32_t id) {
    bodies_[id]->open = false;
    nghttp2_session_resume_data(session_, id);
  }
  void reset(std::int32_t id, std::uint32_t code = NGHTTP2_CANCEL) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, code);
  }

  // Bytes of our own making, behind what the session has to send.
  void send_raw(std::string_view bytes) {
    collect();
    out_ += bytes;
  }
  static std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t id,
                           std::string_view payload) {
    std::string out;
    for (int shift = 16; shift >= 0; shift -= 8) {
      out += static_cast<char>(payload.size() >> static_cast<unsigned>(shift) & 0xff);
    }
    out += static_cast<char>(type);
    out += static_cast<char>(flags);
    for (int shift = 24; shift >= 0; shift -= 8) {
      out += static_cast<char>(id >> static_cast<unsigned>(shift) & 0xff);
    }
    return out += payload;
  }

  // Sends a piece and takes what has come.
  void move() {
    collect();
    const std::size_t sent =
        socket_.send(std::string_view(out_).substr(0, std::min(settings_.piece, out_.size())));
    out_.erase(0, sent);
    if (!reads_) return;
    socket_.receive();
    std::string in;
    in.swap(socket_.in());
    if (nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(in.data()),
                                 in.size()) < 0) {
      broken_ = true;
    }
  }
  [[nodiscard]] bool sent() const { return out_.empty(); }
  // The client takes nothing more from its socket.
  void stop_reading() { reads_ = false; }
  [[nodiscard]] bool broken() const { return broken_; }  // what came is no HTTP/2

  // Moves and turns the proxy until it holds.
  [[nodiscard]] bool until(const std::function<bool()>& holds) {
    return proxy_.until([&] {
      move();
      return holds();
    });
  }
  [[nodiscard]] bool answered(std::int32_t id) {
    return until([&] { return answers_[id].closed || answers_[id].reset || socket_.over(); }) &&
           answers_[id].ended;
  }
  [[nodiscard]] bool over() {
    return until([&] { return socket_.over(); });
  }
  // All that was sent has been taken, and the proxy has had its say on it.
  void settle() {
    static_cast<void>(until([&] { return out_.empty() || socket_.over(); }));
    for (int i = 0; i < 20; ++i) {
      proxy_.turn();
      move();
    }
  }

 private:
  struct Body {
    std::string left;
    bool open = false;
    Fields trailers;
  };

  static std::vector<nghttp2_nv> values(const Fields& fields) {
    std::vector<nghttp2_nv> out;
    for (const auto& [name, value] : fields) {
      out.push_back({reinterpret_cast<std::uint8_t*>(const_cast<char*>(name.data())),
                     reinterpret_cast<std::uint8_t*>(const_cast<char*>(value.data())), name.size(),
                     value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    return out;
  }
  void collect() {
    for (;;) {
      const std::uint8_t* bytes = nullptr;
      const auto size = nghttp2_session_mem_send(session_, &bytes);
      if (size <= 0) return;
      out_.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
    }
  }

  static ssize_t read_body(nghttp2_session* session, std::int32_t id, std::uint8_t* to,
                           std::size_t size, std::uint32_t* flags, nghttp2_data_source* source,
                           void*) {
    Body& body = *static_cast<Body*>(source->ptr);
    if (body.left.empty() && body.open) return NGHTTP2_ERR_DEFERRED;
    const std::size_t count = std::min(size, body.left.size());
    std::copy_n(body.left.data(), count, reinterpret_cast<char*>(to));
    body.left.erase(0, count);
    if (!body.left.empty() || body.open) return static_cast<ssize_t>(count);
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!body.trailers.empty()) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      const std::vector<nghttp2_nv> out = values(body.trailers);
      nghttp2_submit_trailer(session, id, out.data(), out.size());
    }
    return static_cast<ssize_t>(count);
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                       std::size_t name_size, const std::uint8_t* value, std::size_t value_size,
                       std::uint8_t, void* self) {
    auto& client = *static_cast<Http2Client*>(self);
    client.head_.emplace_back(std::string(reinterpret_cast<const char*>(name), name_size),
                              std::string(reinterpret_cast<const char*>(value), value_size));
    static_cast<void>(frame);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
    auto& client = *static_cast<Http2Client*>(self);
    Http2Answer& answer = client.answers_[frame->hd.stream_id];
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS: {
        const bool head = !client.head_.empty() && client.head_[0].first == ":status";
        if (!head) {
          answer.trailers = client.head_;
        } else if (client.head_[0].second[0] == '1') {
          answer.interim.push_back(client.head_);
        } else {
          answer.fields = client.head_;
        }
        client.head_.clear();
        break;
      }
      case NGHTTP2_DATA:
        ++answer.data_frames;
        break;
      case NGHTTP2_RST_STREAM:
        answer.reset = frame->rst_stream.error_code;
        return 0;
      case NGHTTP2_GOAWAY:
        client.goaway_ = frame->goaway.error_code;
        client.last_stream_ = frame->goaway.last_stream_id;
        return 0;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) ++client.pings_;
        return 0;
      default:
        return 0;
    }
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) answer.ended = true;
    return 0;
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                     std::size_t size, void* self) {
    static_cast<Http2Client*>(self)->answers_[id].data.append(reinterpret_cast<const char*>(data),
                                                              size);
    return 0;
  }
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t, void* self) {
    static_cast<Http2Client*>(self)->answers_[id].closed = true;
    return 0;
  }

  SteppedProxy& proxy_;
  const Settings settings_;
  StepSocket socket_;
  nghttp2_session* session_ = nullptr;
  std::string out_;
  Fields head_;
  std::map<std::int32_t, std::unique_ptr<Body>> bodies_;
  std::map<std::int32_t, Http2Answer> answers_;
  std::optional<std::uint32_t> goaway_;
  std::int32_t last_stream_ = -1;
  std::size_t pings_ = 0;
  bool reads_ = true;
  bool broken_ = false;
};

}  // namespace pointsman::test
