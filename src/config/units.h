#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace pointsman {

// "250ms", "5s", "1.5m", "2h", or a plain 0. Nothing else: a number without a unit is a guess.
std::optional<Duration> parse_duration(std::string_view text);
// The shortest way to say it: "90s" stays seconds, "600s" becomes "10m".
std::string duration_text(Duration value);

// "64KiB", "16MiB", "1GiB", or a plain number of bytes.
std::optional<std::size_t> parse_bytes(std::string_view text);
std::string bytes_text(std::size_t value);

// How to write what is nearly a duration or a size: "5" is "5s", "16MB" is "16MiB". Empty: no idea.
std::string duration_hint(std::string_view text);
std::string bytes_hint(std::string_view text);

// A finite decimal number and nothing after it.
std::optional<double> parse_number(std::string_view text);

// HOST:PORT to listen on: an IP address, IPv6 in brackets, or localhost.
bool is_listen_address(std::string_view text);
// Whether such an address is reached from this machine alone: 127.0.0.0/8, ::1 or localhost.
bool is_loopback_address(std::string_view text);
// Whether two listeners cannot have both: the same port of the same address, or of all addresses.
// Never of port 0, nor of what is no address ("off").
bool listen_addresses_collide(std::string_view a, std::string_view b);

}  // namespace pointsman
