#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pointsman {

// Whether the two are equal, in a time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Whether an Authorization header carries `key` as a bearer token.
bool bears_key(std::string_view authorization, std::string_view key);

// Whether a Host header names this server in a way that no web page can bring about: an IP address,
// localhost, or one of `hosts`. A page can have a name of its own resolve to 127.0.0.1 and then
// call this server as if it were its own (DNS rebinding); the Host header gives that away.
bool is_trusted_host(std::string_view host, const std::vector<std::string>& hosts);

// Whether a Content-Type is application/json, with or without parameters. A page of another origin
// cannot send that without asking first, and it gets no leave.
bool is_json(std::string_view content_type);

}  // namespace pointsman
