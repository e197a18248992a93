#include "http/http2_head.h"

#include <algorithm>

#include "base/ascii.h"
#include "http/field_chars.h"

namespace pointsman {
namespace {

// RFC 9113, 6.5.2.
constexpr std::size_t kFieldOverhead = 32;

// RFC 9113, 8.2: names are tokens in lower case.
bool is_field_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return is_token_char(c) && !(c >= 'A' && c <= 'Z');
  });
}

bool is_field_value(std::string_view value) {
  const char* const end = value.data() + value.size();
  return skip_value(value.data(), end) == end;
}

// RFC 9113, 8.2.2.
bool is_of_a_connection(std::string_view name, std::string_view value) {
  if (name == "te") return !iequals(value, "trailers");
  return name == "connection" || name == "keep-alive" || name == "proxy-connection" ||
         name == "transfer-encoding" || name == "upgrade";
}

}  // namespace

void Http2Head::start() {
  list_size_ = field_count_ = 0;
  trailers_ = has_length_ = false;
  body_ = Body::kNone;
  for (std::string* text : {&method_, &path_, &scheme_, &authority_, &cookie_, &fields_}) {
    text->clear();
  }
}

void Http2Head::start_trailers() {
  start();
  trailers_ = true;
}

bool Http2Head::add(std::string_view name, std::string_view value) {
  list_size_ += name.size() + value.size() + kFieldOverhead;
  ++field_count_;
  if (!is_field_value(value)) return false;
  if (name.starts_with(':')) return add_pseudo(name, value);
  if (!is_field_name(name) || is_of_a_connection(name, value)) return false;
  if (name == "cookie" && !trailers_) {
    // RFC 9113, 8.2.3: crumbs become one field again.
    if (cookie_.size() + value.size() > max_size_) {
      append_line(name, value);
      return true;
    }
    if (!cookie_.empty()) cookie_ += "; ";
    cookie_ += value;
    return true;
  }
  if (name == "content-length") has_length_ = true;
  // What says the same as :authority is not said twice.
  if (name == "host" && !authority_.empty() && iequals(value, authority_)) return true;
  append_line(name, value);
  return true;
}

bool Http2Head::add_pseudo(std::string_view name, std::string_view value) {
  if (trailers_ || !fields_.empty() || !cookie_.empty()) return false;
  if (name == ":method") return set_once(method_, value);
  if (name == ":path") return set_once(path_, value);
  if (name == ":authority") return value.empty() || set_once(authority_, value);
  if (name == ":scheme") return set_once(scheme_, value);
  return false;
}

bool Http2Head::set_once(std::string& field, std::string_view value) {
  if (!field.empty() || value.empty()) return false;
  // A space would end it in the line that is made of it.
  if (value.find_first_of(" \t") != std::string_view::npos) return false;
  field = value.substr(0, max_size_ + 1);
  return true;
}

void Http2Head::append_line(std::string_view name, std::string_view value) {
  if (fields_.size() > max_size_) return;
  fields_ += name;
  fields_ += ": ";
  fields_ += value.substr(0, max_size_ + 1);
  fields_ += "\r\n";
}

bool Http2Head::finish(bool ended, std::string& out) {
  const bool connect = method_ == "CONNECT";
  if (method_.empty() || (connect ? authority_.empty() : path_.empty() || scheme_.empty())) {
    return false;
  }
  if (!connect && path_.front() != '/' && path_ != "*") return false;
  out += method_;
  out += ' ';
  out += connect ? authority_ : path_;
  out += " HTTP/1.1\r\n";
  if (!authority_.empty()) {
    out += "host: ";
    out += authority_;
    out += "\r\n";
  }
  out += fields_;
  if (!cookie_.empty()) {
    out += "cookie: ";
    out += cookie_;
    out += "\r\n";
  }
  body_ = has_length_ ? Body::kLength : ended ? Body::kNone : Body::kChunked;
  if (body_ == Body::kChunked) out += "transfer-encoding: chunked\r\n";
  out += "\r\n";
  return true;
}

}  // namespace pointsman
