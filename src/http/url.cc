#include "http/url.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/ascii.h"

namespace pointsman {
namespace {

Error bad(std::string_view text, std::string_view why) {
  return {ErrorKind::kClient, "'" + std::string(text) + "' is not the URL of a replica: " +
                                  std::string(why) + " (like http://host:8000)"};
}

bool is_alnum(char c) {
  return is_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

bool is_name(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return is_alnum(c) || c == '-' || c == '.' || c == '_';
  });
}

// Hexadecimal groups and colons, an IPv4 tail, a zone. Connecting finds out the rest.
bool is_ipv6(std::string_view host) {
  const std::string_view zone = host.substr(std::min(host.find('%'), host.size()));
  const std::string_view address = host.substr(0, host.size() - zone.size());
  return std::count(address.begin(), address.end(), ':') >= 2 &&
         std::all_of(address.begin(), address.end(),
                     [](char c) { return hex_value(c) >= 0 || c == ':' || c == '.'; }) &&
         (zone.empty() || is_name(zone.substr(1)));
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

bool is_path(std::string_view path) {
  return std::all_of(path.begin(), path.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '?' && c != '#'; });
}

}  // namespace

std::string authority_of(std::string_view host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos;
  std::string authority;
  if (brackets) authority += '[';
  authority += host;
  if (brackets) authority += ']';
  return authority + ":" + std::to_string(port);
}

Result<ReplicaUrl> parse_replica_url(std::string_view text) {
  ReplicaUrl url;
  std::string_view rest = text;
  if (istarts_with(rest, "http://")) {
    rest.remove_prefix(7);
  } else if (istarts_with(rest, "https://")) {
    rest.remove_prefix(8);
    url.https = true;
  } else if (rest.find("://") != std::string_view::npos) {
    return bad(text, "only http and https are spoken");
  } else {
    url.scheme_assumed = true;
  }
  url.port = url.https ? 443 : 80;

  const std::size_t authority_end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, authority_end);
  std::string_view path = rest.substr(authority_end);
  if (!is_path(path)) return bad(text, "no query, fragment or special characters may follow");
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path_prefix = path;

  if (authority.find('@') != std::string_view::npos) {
    return bad(text, "keys are configured, not written into the URL");
  }
  std::string_view port;
  bool has_port = false;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad(text, "the bracket is not closed");
    const std::string_view host = authority.substr(1, close - 1);
    if (!is_ipv6(host)) return bad(text, "no IPv6 address stands in the brackets");
    url.host = host;
    authority.remove_prefix(close + 1);
    if (!authority.empty()) {
      if (authority.front() != ':') return bad(text, "a port is written behind a colon");
      port = authority.substr(1);
      has_port = true;
    }
  } else {
    const std::size_t colon = authority.find(':');
    if (authority.find(':', colon == std::string_view::npos ? colon : colon + 1) !=
        std::string_view::npos) {
      return bad(text, "an address in brackets is needed for IPv6");
    }
    if (colon != std::string_view::npos) {
      port = authority.substr(colon + 1);
      has_port = true;
    }
    const std::string_view host = authority.substr(0, colon);
    if (!is_name(host)) return bad(text, "it names no host");
    url.host = host;
  }
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), ascii_lower);
  const std::uint16_t usual = url.port;
  if (has_port) {
    const auto number = parse_port(port);
    if (!number) return bad(text, "a port is a number from 1 to 65535");
    url.port = *number;
  }
  url.authority = authority_of(url.host, url.port);
  if (url.port == usual) url.authority.resize(url.authority.rfind(':'));
  return url;
}

}  // namespace pointsman
