#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pointsman {

// Makes the HTTP/1.1 head of a request that came as fields of HTTP/2 (RFC 9113, 8.3), for the same
// parser that reads all other heads: what that refuses (too many headers, a bad target, no host) is
// refused with the same answer whichever way it came.
//
// Use: start(), add() for each field in order, finish(). Or start_trailers(), add(), trailers().
//
// Text is kept up to one byte more than a head may have, which the parser then refuses; the count
// goes on. Keeps its memory. Not thread-safe.
class Http2Head {
 public:
  // `max_size`: as HeadLimits::max_size.
  explicit Http2Head(std::size_t max_size) : max_size_(max_size) {}

  // How the body is told from what follows it.
  enum class Body : std::uint8_t { kNone, kLength, kChunked };

  void start();
  void start_trailers();

  // False: the message is malformed (RFC 9113, 8.1.1): a field that belongs to a connection of
  // HTTP/1.1, characters that no field may have, or a pseudo-header out of its place.
  [[nodiscard]] bool add(std::string_view name, std::string_view value);

  // Appends the head. `ended`: nothing follows. False: malformed, nothing is appended.
  [[nodiscard]] bool finish(bool ended, std::string& out);
  // Of finish().
  [[nodiscard]] Body body() const { return body_; }
  [[nodiscard]] bool asks_for_head() const { return method_ == "HEAD"; }

  // Whole lines, without the empty one.
  [[nodiscard]] std::string_view trailers() const { return fields_; }

  // Of all fields, as SETTINGS_MAX_HEADER_LIST_SIZE counts them (RFC 9113, 6.5.2), the ones that
  // were not kept included.
  [[nodiscard]] std::size_t list_size() const { return list_size_; }
  [[nodiscard]] std::size_t field_count() const { return field_count_; }

 private:
  [[nodiscard]] bool add_pseudo(std::string_view name, std::string_view value);
  [[nodiscard]] bool set_once(std::string& field, std::string_view value);
  void append_line(std::string_view name, std::string_view value);

  std::size_t max_size_;
  std::size_t list_size_ = 0;
  std::size_t field_count_ = 0;
  bool trailers_ = false;
  bool has_length_ = false;
  Body body_ = Body::kNone;
  std::string method_;
  std::string path_;
  std::string scheme_;
  std::string authority_;
  std::string cookie_;
  std::string fields_;
};

}  // namespace pointsman
