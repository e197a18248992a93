#pragma once

#include <string>
#include <string_view>

#include "http/head.h"

namespace pointsman {

// What the router puts into a request head on its way to a replica.
struct UpstreamRequest {
  std::string_view authority;      // the Host that the replica sees
  std::string_view path_prefix;    // of the replica's URL, put before the path; may be empty
  std::string_view request_id;     // used where the client sent none
  std::string_view authorization;  // the whole value, in place of the client's; empty: client's
  bool drop_keys = false;          // the client's Authorization and x-api-key end here
};

// Appends the head for the replica: the client's method, target and end-to-end headers as they
// came, in their order, with these changes. Hop-by-hop headers and what Connection names are left
// out; so are `Expect: 100-continue`, which the router answers itself, and hidden steering headers.
// Host is the replica's; X-Request-Id is present. The framing of the body stays the client's. An
// upgrade to websocket is asked for again; to any other protocol (h2c) it is not.
//
// No allocation once `out` has grown to its usual size.
void write_request_head(const RequestHead& head, const UpstreamRequest& request, std::string& out);

// What the router puts into a response head on its way to the client.
struct ClientResponse {
  std::string_view request_id;  // returned in place of the replica's; empty: none
  BodyKind body = BodyKind::kNone;
  bool http10 = false;     // the client speaks HTTP/1.0: a chunked body reaches it without chunks
  bool keep_alive = true;  // whether the client's connection may be used again
  std::string_view extra;  // whole header lines, each with its CRLF
};

// Appends the head for the client. Returns whether the connection stays open after the body: false
// when not wanted, or when only its close can show the end of the body.
bool write_response_head(const ResponseHead& head, const ClientResponse& response,
                         std::string& out);

// Appends `payload` as one chunk. An empty payload appends nothing (it would end the body).
void append_chunk(std::string& out, std::string_view payload);

}  // namespace pointsman
