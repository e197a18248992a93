#include "config/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <arpa/inet.h>

#include "base/ascii.h"
#include "core/registry.h"

namespace pointsman {
namespace {

struct DurationUnit {
  std::string_view name;
  std::int64_t nanoseconds;
};
constexpr std::array kDurationUnits = {
    DurationUnit{"h", 3'600'000'000'000}, DurationUnit{"m", 60'000'000'000},
    DurationUnit{"ms", 1'000'000}, DurationUnit{"us", 1'000}, DurationUnit{"s", 1'000'000'000}};

struct ByteUnit {
  std::string_view name;
  int shift;
};
constexpr std::array kByteUnits = {ByteUnit{"GiB", 30}, ByteUnit{"MiB", 20}, ByteUnit{"KiB", 10}};

bool is_ip(std::string_view host, int family) {
  in6_addr address;  // large enough for both families
  return ::inet_pton(family, std::string(host).c_str(), &address) == 1;
}

// Without the port and without brackets; empty where there is none.
std::string_view host_of(std::string_view text) {
  std::string_view host = text.substr(0, std::min(text.size(), text.rfind(':')));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

// Behind the last colon; empty where there is none.
std::string_view port_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  return colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
}

using Address = std::array<unsigned char, 16>;
constexpr Address kAllIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0};
constexpr Address kAll = {};

// The address as the system knows it, the same for every spelling; IPv4 in IPv6's form.
Address binary_of(std::string_view host) {
  const std::string text(host == "localhost" ? "127.0.0.1" : host);
  Address bytes = kAllIpv4;
  if (::inet_pton(AF_INET, text.c_str(), bytes.data() + 12) == 1) return bytes;
  bytes = kAll;
  ::inet_pton(AF_INET6, text.c_str(), bytes.data());
  return bytes;
}

// Whether a listener on `a` takes the connections to `b`.
bool covers(const Address& a, const Address& b) {
  return a == b || a == kAll ||
         (a == kAllIpv4 && std::equal(b.begin(), b.begin() + 12, kAllIpv4.begin()));
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<Duration> parse_duration(std::string_view text) {
  if (text == "0") return Duration{0};
  const std::size_t digits = text.find_first_not_of("0123456789.");
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  const std::optional<double> number = parse_number(text.substr(0, digits));
  if (!number) return std::nullopt;
  for (const DurationUnit& unit : kDurationUnits) {
    if (text.substr(digits) != unit.name) continue;
    const double nanoseconds = *number * static_cast<double>(unit.nanoseconds);
    if (nanoseconds > 9e18) return std::nullopt;  // 292 years do not fit
    return Duration{std::llround(nanoseconds)};
  }
  return std::nullopt;
}

std::string duration_text(Duration value) {
  if (value == Duration{0}) return "0";
  const std::int64_t nanoseconds = value.count();
  for (const std::string_view name : {"h", "m", "s", "ms", "us"}) {
    for (const DurationUnit& unit : kDurationUnits) {
      if (unit.name == name && nanoseconds % unit.nanoseconds == 0) {
        return std::to_string(nanoseconds / unit.nanoseconds).append(name);
      }
    }
  }
  return to_text(static_cast<double>(nanoseconds) / 1e6) + "ms";
}

std::string duration_hint(std::string_view text) {
  const std::optional<double> number = parse_number(text);
  return number && *number > 0 ? std::string(text) + "s" : "";
}

std::string bytes_hint(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return "";
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const ByteUnit& known : kByteUnits) {
    const std::string_view letter = known.name.substr(0, 1);
    for (const std::string_view rest : {"", "b", "ib"}) {
      if (iequals(unit, std::string(letter).append(rest))) {
        return std::string(text.substr(0, digits)).append(known.name);
      }
    }
  }
  return "";
}

std::optional<std::size_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc()) return std::nullopt;
  const std::string_view rest = text.substr(static_cast<std::size_t>(end.ptr - text.data()));
  if (rest.empty()) return value;
  for (const ByteUnit& unit : kByteUnits) {
    if (rest == unit.name && value <= (std::uint64_t{1} << 63 >> unit.shift)) {
      return value << unit.shift;
    }
  }
  return std::nullopt;
}

std::string bytes_text(std::size_t value) {
  for (const ByteUnit& unit : kByteUnits) {
    if (value != 0 && value % (std::size_t{1} << unit.shift) == 0) {
      return std::to_string(value >> unit.shift).append(unit.name);
    }
  }
  return std::to_string(value);
}

bool is_listen_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return false;
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  if (read.ec != std::errc() || read.ptr != end) return false;
  const std::string_view host = host_of(text);
  if (text.front() == '[') return is_ip(host, AF_INET6);
  return host == "localhost" || is_ip(host, AF_INET);
}

bool is_loopback_address(std::string_view text) {
  const std::string_view host = host_of(text);
  return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_ip(host, AF_INET));
}

bool listen_addresses_collide(std::string_view a, std::string_view b) {
  if (!is_listen_address(a) || !is_listen_address(b)) return false;
  const auto number = [](std::string_view text) { return parse_number(port_of(text)).value_or(0); };
  if (number(a) == 0 || number(a) != number(b)) return false;
  const Address one = binary_of(host_of(a));
  const Address other = binary_of(host_of(b));
  return covers(one, other) || covers(other, one);
}

}  // namespace pointsman
