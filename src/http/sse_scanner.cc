#include "http/sse_scanner.h"

#include <algorithm>
#include <cstring>

namespace pointsman {
namespace {

constexpr std::string_view kBom = "\xef\xbb\xbf";
constexpr std::size_t kMaxName = 256;

std::size_t find_line_end(std::string_view text) {
  const auto* lf = static_cast<const char*>(std::memchr(text.data(), '\n', text.size()));
  const std::size_t size = lf == nullptr ? text.size() : static_cast<std::size_t>(lf - text.data());
  const auto* cr = static_cast<const char*>(std::memchr(text.data(), '\r', size));
  return cr == nullptr ? size : static_cast<std::size_t>(cr - text.data());
}

}  // namespace

bool SseScanner::take_line(std::string_view& piece) {
  if (after_cr_) {
    after_cr_ = false;
    if (piece.front() == '\n') {
      piece.remove_prefix(1);
      return false;
    }
  }
  const std::size_t end = find_line_end(piece);
  const std::string_view part = piece.substr(0, end);
  if (end == piece.size()) {  // unfinished
    in_line_ = in_line_ || !part.empty();
    if (!too_long_ && line_.size() + part.size() > max_event_) pass_over();
    if (!too_long_) line_ += part;
    piece = {};
    return false;
  }
  after_cr_ = piece[end] == '\r';
  piece.remove_prefix(end + 1);
  line_was_empty_ = !in_line_ && part.empty();
  in_line_ = false;
  if (too_long_) return true;
  if (line_.size() + part.size() > max_event_) {
    pass_over();
  } else if (line_.empty()) {
    note_line(part);
  } else {
    line_ += part;
    note_line(line_);
    keep_pending();
    line_.clear();
  }
  return true;
}

void SseScanner::note_line(std::string_view line) {
  if (first_line_) {
    first_line_ = false;
    if (line.starts_with(kBom)) line.remove_prefix(kBom.size());
  }
  if (line.empty() || line.front() == ':') return;
  in_event_ = true;
  const std::size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    add_data(value);
  } else if (field == "event") {
    name_ = value.substr(0, kMaxName);
  }
}

void SseScanner::add_data(std::string_view value) {
  if (!has_data_) {
    has_data_ = true;
    view_ = value;
    pending_ = true;
    return;
  }
  keep_pending();
  if (kept_.size() + 1 + value.size() > max_event_) {
    pass_over();
    return;
  }
  kept_ += '\n';
  kept_ += value;
}

bool SseScanner::end_of_event() {
  if (!line_was_empty_) return false;
  if (has_data_ && !too_long_) return true;
  clear_event();
  return false;
}

void SseScanner::clear_event() {
  name_.clear();
  kept_.clear();
  if (kept_.capacity() > kSpare) std::string().swap(kept_);
  if (line_.empty() && line_.capacity() > kSpare) std::string().swap(line_);
  pending_ = has_data_ = in_event_ = too_long_ = false;
}

// The present piece is about to go: what is still needed of it is copied.
void SseScanner::keep_pending() {
  if (!pending_) return;
  pending_ = false;
  kept_ = view_;
}

void SseScanner::pass_over() {
  too_long_ = true;
  in_event_ = true;
  ++passed_over_;
  line_.clear();
  kept_.clear();
  pending_ = false;
}

void SseScanner::reset() {
  clear_event();
  line_.clear();
  passed_over_ = 0;
  first_line_ = true;
  in_line_ = after_cr_ = line_was_empty_ = false;
}

}  // namespace pointsman
