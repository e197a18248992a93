#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pointsman {

// Where a replica listens, taken apart.
struct ReplicaUrl {
  std::string host;  // a name, or an address; IPv6 without its brackets
  std::uint16_t port = 80;
  std::string authority;  // for the Host header: brackets as needed, the scheme's own port left out
  std::string path_prefix;  // "" or "/base", never with a slash at the end
  bool https = false;
  bool scheme_assumed = false;  // none was given; http is meant, and a person should be told
};

// Accepts http:// and https:// URLs and a bare host:port. Refuses user names, queries, fragments,
// "." and ".." segments, hosts that can be none, and IPv6 addresses without brackets; the error
// says what is needed.
Result<ReplicaUrl> parse_replica_url(std::string_view text);

// host:port, the host in brackets where it is an IPv6 address.
std::string authority_of(std::string_view host, std::uint32_t port);

}  // namespace pointsman
