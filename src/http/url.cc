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

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_'; });
}

// Four numbers up to 255 without needless zeros, which some programs read as octal.
bool is_ipv4(std::string_view text) {
  for (int part = 0; part < 4; ++part) {
    const std::string_view number = text.substr(0, part < 3 ? text.find('.') : text.size());
    std::uint8_t value = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, value);
    if (read.ec != std::errc{} || read.ptr != end) return false;
    if (number.size() > 1 && number.front() == '0') return false;
    text.remove_prefix(number.size());
    if (part < 3) {
      if (text.empty()) return false;
      text.remove_prefix(1);
    }
  }
  return true;
}

// Eight groups of up to four hexadecimal digits (RFC 4291, 2.2): "::" once, for one or more of
// them; the last two may be written as an IPv4 address.
bool is_ipv6_address(std::string_view text) {
  int groups = 0;
  bool gap = false;
  if (text.starts_with("::")) {
    gap = true;
    text.remove_prefix(2);
    if (text.empty()) return true;
  }
  for (;;) {
    const std::size_t colon = text.find(':');
    const std::string_view group = text.substr(0, colon);
    if (colon == std::string_view::npos && is_ipv4(group)) {
      groups += 2;
      break;
    }
    if (group.empty() || group.size() > 4 ||
        !std::all_of(group.begin(), group.end(), [](char c) { return hex_value(c) >= 0; })) {
      return false;
    }
    ++groups;
    if (colon == std::string_view::npos) break;
    text.remove_prefix(colon + 1);
    if (!text.starts_with(':')) continue;
    if (gap) return false;
    gap = true;
    text.remove_prefix(1);
    if (text.empty()) break;
  }
  return gap ? groups < 8 : groups == 8;
}

// A name of DNS, or an IPv4 address: what ends in a number is one or nothing.
bool is_host(std::string_view host) {
  std::string_view rest = host.ends_with('.') ? host.substr(0, host.size() - 1) : host;
  if (rest.size() > 253) return false;
  std::string_view label;
  for (bool more = true; more;) {
    const std::size_t point = rest.find('.');
    label = rest.substr(0, point);
    if (!is_label(label)) return false;
    more = point != std::string_view::npos;
    if (more) rest.remove_prefix(point + 1);
  }
  const bool numeric = std::all_of(label.begin(), label.end(), is_digit);
  return !numeric || is_ipv4(host);
}

// An address, and after a percent sign its zone.
bool is_ipv6(std::string_view host) {
  const std::string_view address = host.substr(0, host.find('%'));
  const std::string_view zone = host.substr(address.size());
  return is_ipv6_address(address) && (zone.empty() || is_label(zone.substr(1)));
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

// "." and "..", escaped or not: whoever asks the replica may resolve them, or refuse the path.
bool has_dot_segment(std::string_view path) {
  while (!path.empty()) {
    path.remove_prefix(1);  // the slash
    std::string_view segment = path.substr(0, path.find('/'));
    path.remove_prefix(segment.size());
    std::size_t dots = 0;
    while (!segment.empty()) {
      const std::size_t length = istarts_with(segment, "%2e") ? 3 : segment.front() == '.' ? 1 : 0;
      if (length == 0) break;
      segment.remove_prefix(length);
      ++dots;
    }
    if (segment.empty() && (dots == 1 || dots == 2)) return true;
  }
  return false;
}

}  // namespace

std::string authority_of(std::string_view host, std::uint32_t port) {
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
  if (has_dot_segment(path)) return bad(text, "its path has a . or .. segment");
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
    if (!is_host(host)) return bad(text, "it names no host");
    url.host = host;
  }
  std::transform(url.host.begin(), url.host.end(), url.host.begin(), ascii_lower);
  if (url.scheme_assumed && !has_port) {
    return bad(text, "without a scheme it is written HOST:PORT");
  }
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
