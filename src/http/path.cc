#include "http/path.h"

#include "base/ascii.h"

namespace pointsman {
namespace {

bool is_plain(std::string_view path) {
  // Every segment: not empty (but for the last), not "." and not "..".
  std::size_t begin = 1;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (segment.empty() && end != path.size()) return false;
    if (segment == "." || segment == "..") return false;
    begin = end + 1;
  }
  return path.find('\\') == std::string_view::npos;
}

}  // namespace

std::optional<std::string_view> routing_path(std::string_view raw, std::string& scratch) {
  if (raw.empty() || raw.front() != '/') return std::nullopt;
  std::string_view path = raw;
  if (raw.find('%') != std::string_view::npos) {
    scratch.clear();
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '%') {
        scratch += raw[i];
        continue;
      }
      const int high = i + 2 < raw.size() ? hex_value(raw[i + 1]) : -1;
      const int low = i + 2 < raw.size() ? hex_value(raw[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      const int byte = high * 16 + low;
      if (byte < 0x20 || byte == 0x7f || byte == '/') return std::nullopt;
      scratch += static_cast<char>(byte);
      i += 2;
    }
    path = scratch;
  }
  if (!is_plain(path)) return std::nullopt;
  return path;
}

}  // namespace pointsman
