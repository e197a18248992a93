#include "admin/access_rules.h"

#include <algorithm>

#include <arpa/inet.h>

#include "base/ascii.h"

namespace pointsman {
namespace {

bool is_ip(std::string_view text) {
  in6_addr address;  // large enough for both families
  const std::string copy(text);
  return ::inet_pton(AF_INET, copy.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, copy.c_str(), &address) == 1;
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  return difference == 0;
}

bool bears_key(std::string_view authorization, std::string_view key) {
  constexpr std::string_view kScheme = "bearer ";
  if (!istarts_with(authorization, kScheme)) return false;
  return equal_in_constant_time(trim(authorization.substr(kScheme.size())), key);
}

bool is_trusted_host(std::string_view host, const std::vector<std::string>& hosts) {
  if (!host.empty() && host.front() == '[') {  // [IPv6] or [IPv6]:port
    const std::size_t end = host.find(']');
    return end != std::string_view::npos && is_ip(host.substr(1, end - 1)) &&
           (end + 1 == host.size() || host[end + 1] == ':');
  }
  const std::string_view name = host.substr(0, host.find(':'));
  return is_ip(name) || iequals(name, "localhost") ||
         std::any_of(hosts.begin(), hosts.end(),
                     [name](const std::string& one) { return iequals(name, one); });
}

bool is_json(std::string_view content_type) {
  return iequals(trim(content_type.substr(0, content_type.find(';'))), "application/json");
}

}  // namespace pointsman
