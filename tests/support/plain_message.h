#pragma once

#include <cctype>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pointsman::test {

// An HTTP/1.1 message as an obvious, slow reader sees it that shares no code with the parsers.
struct PlainMessage {
  std::string start;                                         // the request line or the status line
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;                                          // without chunk framing
  std::size_t size = 0;                                      // bytes of all of it
  bool until_close = false;                                  // its body ends with the connection

  [[nodiscard]] std::string header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
  [[nodiscard]] int status() const {
    return start.size() < 12 ? 0 : std::atoi(start.substr(9, 3).c_str());
  }
};

// The message that `bytes` begin with; nothing where it is not whole. `to_head`: it answers a HEAD.
// `ended`: the connection has ended well behind `bytes`.
inline std::optional<PlainMessage> read_message(std::string_view bytes, bool to_head = false,
                                                bool ended = false) {
  PlainMessage message;
  const auto line = [&]() -> std::optional<std::string> {
    const std::size_t end = bytes.find("\r\n", message.size);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(bytes.substr(message.size, end - message.size));
    message.size = end + 2;
    return text;
  };
  const std::optional<std::string> start = line();
  if (!start) return std::nullopt;
  message.start = *start;
  for (;;) {
    const std::optional<std::string> text = line();
    if (!text) return std::nullopt;
    if (text->empty()) break;
    std::string name = text->substr(0, text->find(':'));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::size_t value = text->find_first_not_of(": ", name.size());
    message.headers.emplace_back(name, value == std::string::npos ? "" : text->substr(value));
  }
  const bool answer = message.start.starts_with("HTTP/");
  const int status = answer ? message.status() : 0;
  if (to_head || (answer && status < 200) || status == 204 || status == 304) return message;
  if (message.header("transfer-encoding") == "chunked") {
    for (;;) {
      const std::optional<std::string> text = line();
      if (!text) return std::nullopt;
      const std::size_t size = std::strtoul(text->c_str(), nullptr, 16);
      if (size == 0) break;
      if (bytes.size() - message.size < size + 2) return std::nullopt;
      message.body += bytes.substr(message.size, size);
      message.size += size + 2;
    }
    for (;;) {
      const std::optional<std::string> trailer = line();
      if (!trailer) return std::nullopt;
      if (trailer->empty()) return message;
    }
  }
  const std::string length = message.header("content-length");
  if (!length.empty()) {
    const std::size_t size = std::stoul(length);
    if (bytes.size() - message.size < size) return std::nullopt;
    message.body = bytes.substr(message.size, size);
    message.size += size;
    return message;
  }
  if (!answer) return message;
  if (!ended) return std::nullopt;
  message.until_close = true;
  message.body = bytes.substr(message.size);
  message.size = bytes.size();
  return message;
}

}  // namespace pointsman::test
