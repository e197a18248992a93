#include "http/head_writer.h"

#include <charconv>

#include "base/ascii.h"

namespace pointsman {
namespace {

// Appends the lines that `keep` accepts. Neighbouring lines go over in one piece.
template <typename Keep>
void append_lines(const Head& head, std::string& out, Keep&& keep) {
  const char* run = nullptr;
  const char* run_end = nullptr;
  const auto flush = [&] {
    if (run != nullptr) out.append(run, run_end);
    run = nullptr;
  };
  for (std::size_t i = 0; i < head.header_count(); ++i) {
    if (!keep(head.header(i))) {
      flush();
      continue;
    }
    const std::string_view line = head.line(i);
    if (run == nullptr) run = line.data();
    run_end = line.data() + line.size();
  }
  flush();
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

}  // namespace

void write_request_head(const RequestHead& head, const UpstreamRequest& request, std::string& out) {
  out += head.method();
  out += ' ';
  if (head.target() == "*") {
    out += '*';
  } else {
    out += request.path_prefix;
    out += head.path();
    out += head.query();
  }
  out += " HTTP/1.1\r\n";
  append_header(out, "Host", request.authority);
  append_lines(head, out, [&](const Header& header) {
    switch (header.id) {
      case HeaderId::kHost:
        return false;
      case HeaderId::kExpect:
        return !iequals(header.value, "100-continue");
      case HeaderId::kAuthorization:
        return request.authorization.empty() && !request.drop_keys && !head.is_hop_by_hop(header);
      case HeaderId::kXApiKey:
        return !request.drop_keys && !head.is_hop_by_hop(header);
      case HeaderId::kXRequestId:
        return !header.value.empty();
      default:
        return !head.is_hop_by_hop(header);
    }
  });
  if (head.chunked()) append_header(out, "Transfer-Encoding", "chunked");
  if (head.request_id().empty()) append_header(out, "X-Request-Id", request.request_id);
  if (!request.authorization.empty()) append_header(out, "Authorization", request.authorization);
  if (iequals(head.upgrade(), "websocket")) out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  out += "\r\n";
}

bool write_response_head(const ResponseHead& head, const ClientResponse& response,
                         std::string& out) {
  const bool chunks_shown =
      head.chunked() && !response.http10 && head.status() >= 200 && head.status() != 204;
  const bool delimited = response.body == BodyKind::kNone || response.body == BodyKind::kLength ||
                         (response.body == BodyKind::kChunked && chunks_shown);
  const bool stays_open = response.keep_alive && delimited;

  char status[4];
  std::to_chars(status, status + 3, head.status());
  out += "HTTP/1.1 ";
  out.append(status, 3);
  out += ' ';
  out += head.reason();
  out += "\r\n";
  append_lines(head, out, [&](const Header& header) {
    if (header.id == HeaderId::kXRequestId) return response.request_id.empty();
    // RFC 9110, 8.6: no length in an interim answer, nor in one that says "no content".
    if (header.id == HeaderId::kContentLength && (head.status() < 200 || head.status() == 204)) {
      return false;
    }
    return !head.is_hop_by_hop(header);
  });
  if (chunks_shown) append_header(out, "Transfer-Encoding", "chunked");
  if (!response.request_id.empty()) append_header(out, "X-Request-Id", response.request_id);
  out += response.extra;
  if (head.status() == 101) {
    out += "Connection: Upgrade\r\n";
    append_header(out, "Upgrade", head.upgrade());
  } else if (!stays_open) {
    out += "Connection: close\r\n";
  } else if (response.http10) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return stays_open;
}

void append_chunk(std::string& out, std::string_view payload) {
  if (payload.empty()) return;
  char size[16];
  const auto [end, error] = std::to_chars(size, size + sizeof size, payload.size(), 16);
  out.append(size, end);
  out += "\r\n";
  out += payload;
  out += "\r\n";
}

}  // namespace pointsman
