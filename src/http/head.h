#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace pointsman {

// Limits on one message head. Past either, a request is answered with 431.
struct HeadLimits {
  // In bytes, with the start line and the final empty line; at most kMaxHeadSize.
  std::size_t max_size = 64 * 1024;
  // Header lines; at most kMaxHeaders.
  std::size_t max_headers = 256;
};

inline constexpr std::size_t kMaxHeadSize = 65'536;  // places in a head are 16-bit numbers
inline constexpr std::size_t kMaxHeaders = 1024;

// The headers that mean something to a proxy. All others only pass through it.
enum class HeaderId : std::uint8_t {
  kOther,
  kAuthorization,
  kConnection,
  kContentEncoding,
  kContentLength,
  kContentType,
  kExpect,
  kHost,
  kKeepAlive,
  kProxyAuthenticate,
  kProxyAuthorization,
  kProxyConnection,
  kTe,
  kTransferEncoding,
  kUpgrade,
  kXApiKey,
  kXRequestId,
  // A header by which routers, gateways and sidecars are told where a request has to go or before
  // which others: see is_steering().
  kSteering,
};

// Which header a name is: `name` consists of token characters. Cost: one switch on the length.
HeaderId header_id(std::string_view name);

// Whether a header of this name steers: x-pointsman-*, the destination and priority headers of the
// Kubernetes endpoint pickers (x-gateway-destination-endpoint*, x-gateway-inference-*,
// x-gateway-model-name-rewrite, x-llm-d-*), those that tell an engine's sidecar which host to talk
// to (x-prefiller-host-port, x-encoder-hosts-ports, x-data-parallel-host-port,
// x-kv-cache-source-host-port), x-smg-target-worker and x-envoy-original-dst-host.
bool is_steering(std::string_view name);

struct Header {
  HeaderId id;
  std::string_view name;   // as it was spelt
  std::string_view value;  // without the white space around it
};

// A piece of the head, by its place, so that the bytes may be moved (see Head::rebase).
struct HeadSpan {
  std::uint16_t at = 0;
  std::uint16_t size = 0;
};

// What request and response heads have in common. Nothing is copied: all text is views into the
// caller's buffer, which must stay as it is while they are used.
class Head {
 public:
  // Bytes from the start of the buffer to the end of the head, the empty line included.
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] int version_minor() const { return version_minor_; }  // of HTTP/1.x: 0 or 1

  [[nodiscard]] std::size_t header_count() const { return lines_.size(); }
  [[nodiscard]] Header header(std::size_t i) const {
    const Line& line = lines_[i];
    return {line.id, text(line.name_at, line.name_size), text(line.value.at, line.value.size)};
  }
  // The whole line i as it came, its CRLF included.
  [[nodiscard]] std::string_view line(std::size_t i) const {
    const std::size_t at = lines_[i].name_at;
    const std::size_t end = i + 1 < lines_.size() ? lines_[i + 1].name_at : size_ - 2;
    return text(at, end - at);
  }

  // The first header of that name, in any case of letters. Empty optional: there is none.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view name) const;
  [[nodiscard]] std::optional<std::string_view> find(HeaderId id) const;

  [[nodiscard]] std::optional<std::uint64_t> content_length() const {
    return has_content_length_ ? std::optional(content_length_) : std::nullopt;
  }
  [[nodiscard]] bool chunked() const { return chunked_; }
  // Whether the sender is willing to use the connection again after this message.
  [[nodiscard]] bool keep_alive() const { return keep_alive_; }
  // The protocol of the Upgrade header, where Connection asks for it (HTTP/1.1 only), else empty.
  [[nodiscard]] std::string_view upgrade() const { return text(upgrade_); }
  [[nodiscard]] std::string_view content_type() const { return text(content_type_); }
  [[nodiscard]] std::string_view content_encoding() const { return text(content_encoding_); }
  [[nodiscard]] std::string_view request_id() const { return text(request_id_); }

  // True for what belongs to this connection only and must not be sent on: the hop-by-hop headers
  // of RFC 9110, 7.6.1, those of old proxies, and all that the Connection header names. Framing
  // (Content-Length) and Host are never taken for hop-by-hop, whatever Connection says. So is a
  // hidden steering header.
  [[nodiscard]] bool is_hop_by_hop(const Header& header) const;

  // The same bytes now lie at `buffer`.
  void rebase(const char* buffer) { base_ = buffer; }

 protected:
  friend class HeadParser;
  friend class RequestHeadParser;
  friend class ResponseHeadParser;

  Head() { lines_.reserve(kUsualHeaders); }

  // Of nearly all messages; more take memory, which the next message gives back.
  static constexpr std::size_t kUsualHeaders = 32;

  struct Line {
    std::uint16_t name_at;
    std::uint8_t name_size;
    HeaderId id;
    HeadSpan value;
  };

  void clear();
  [[nodiscard]] std::string_view text(std::size_t at, std::size_t size) const {
    return {base_ + at, size};
  }
  [[nodiscard]] std::string_view text(HeadSpan span) const { return {base_ + span.at, span.size}; }

  const char* base_ = "";
  std::size_t size_ = 0;
  std::uint64_t content_length_ = 0;
  std::uint8_t version_minor_ = 1;
  bool has_content_length_ = false;
  bool chunked_ = false;
  bool keep_alive_ = true;
  bool connection_names_headers_ = false;  // Connection holds more than close, keep-alive, upgrade
  bool steers_ = false;
  bool steering_hidden_ = false;
  HeadSpan upgrade_;
  HeadSpan content_type_;
  HeadSpan content_encoding_;
  HeadSpan request_id_;
  std::vector<Line> lines_;
};

class RequestHead : public Head {
 public:
  [[nodiscard]] std::string_view method() const { return text(method_); }
  // As it came: "/v1/models?x=1", "http://host/v1/models" or "*".
  [[nodiscard]] std::string_view target() const { return text(target_); }
  // The target's path without the query, still encoded; "/" where an absolute target has none.
  [[nodiscard]] std::string_view path() const {
    return path_.size == 0 ? std::string_view("/") : text(path_);
  }
  // With its question mark; empty where there is none.
  [[nodiscard]] std::string_view query() const { return text(query_); }
  // The authority of an absolute target, else the Host header. May be empty.
  [[nodiscard]] std::string_view host() const { return text(host_); }
  [[nodiscard]] bool expect_continue() const { return expect_continue_; }
  // Whether there is a header that steers.
  [[nodiscard]] bool steers() const { return steers_; }
  // From here on those headers are not there: find() does not see them, and they are not sent on.
  void hide_steering() { steering_hidden_ = true; }
  [[nodiscard]] bool has_body() const {
    return chunked_ || (has_content_length_ && content_length_ > 0);
  }

 private:
  friend class RequestHeadParser;

  void clear();

  HeadSpan method_;
  HeadSpan target_;
  HeadSpan path_;
  HeadSpan query_;
  HeadSpan host_;
  bool expect_continue_ = false;
};

// How the end of a response's body is known (RFC 9112, 6.3).
enum class BodyKind : std::uint8_t { kNone, kLength, kChunked, kUntilClose };

class ResponseHead : public Head {
 public:
  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] std::string_view reason() const { return text(reason_); }  // may be empty
  // 100 to 199 but not 101: another head follows.
  [[nodiscard]] bool interim() const { return status_ < 200 && status_ != 101; }
  // HEAD, 1xx, 204 and 304 have no body, whatever their headers say.
  [[nodiscard]] BodyKind body_kind(std::string_view request_method) const {
    if (request_method == "HEAD" || status_ < 200 || status_ == 204 || status_ == 304) {
      return BodyKind::kNone;
    }
    if (chunked_) return BodyKind::kChunked;
    return has_content_length_ ? BodyKind::kLength : BodyKind::kUntilClose;
  }
  [[nodiscard]] bool event_stream() const;  // Content-Type is text/event-stream

 private:
  friend class ResponseHeadParser;

  void clear();

  HeadSpan reason_;
  int status_ = 0;
};

}  // namespace pointsman
