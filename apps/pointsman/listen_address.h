#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pointsman {

struct ListenAddress {
  std::string host;  // an IP address, without brackets
  std::uint16_t port = 0;
};

// HOST:PORT, where HOST is an IP address (IPv6 in brackets) or `localhost`.
inline Result<ListenAddress> parse_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const auto bad = [&] {
    return Error{ErrorKind::kClient, "not an address to listen on: '" + std::string(text) +
                                         "' (expected HOST:PORT, as in 127.0.0.1:8000)"};
  };
  if (colon == std::string_view::npos) return bad();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  ListenAddress address;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc() || end != digits.data() + digits.size()) return bad();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  address.host = host == "localhost" ? "127.0.0.1" : host;
  if (address.host.empty()) return bad();
  return address;
}

}  // namespace pointsman
