#include "http/openai_error.h"

#include "base/json_text.h"

namespace pointsman {
namespace {

void append_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

void append_head(int status, std::string_view content_type, std::size_t length,
                 std::string_view request_id, bool keep_alive, std::string& out) {
  out += "HTTP/1.1 ";
  out += std::to_string(status);
  out += ' ';
  out += reason_phrase(status);
  out += "\r\nContent-Type: ";
  out += content_type;
  out += "\r\nContent-Length: ";
  out += std::to_string(length);
  out += "\r\n";
  if (!request_id.empty()) {
    out += "X-Request-Id: ";
    out += request_id;
    out += "\r\n";
  }
  out += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
}

}  // namespace

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return {};
  }
}

void append_error_body(const OwnError& error, std::string& out) {
  out += R"({"error":{"message":)";
  append_json_string(out, error.message);
  out += R"(,"type":)";
  append_json_string(out, error.type);
  out += R"(,"param":)";
  append_or_null(out, error.param);
  out += R"(,"code":)";
  append_or_null(out, error.code);
  out += "}}";
}

void append_error_response(const OwnError& error, std::string_view request_id, bool keep_alive,
                           bool head_only, std::string& out) {
  std::string body;
  append_error_body(error, body);
  append_head(error.status, "application/json", body.size(), request_id, keep_alive, out);
  if (!error.kind.empty()) {
    out += "X-Pointsman-Error: ";
    out += error.kind;
    out += "\r\n";
  }
  // RFC 9110, 11.6.1: who is refused for want of a key is told what kind of key.
  if (error.status == 401) out += "WWW-Authenticate: Bearer\r\n";
  if (error.retry_after_s > 0) {
    out += "Retry-After: ";
    out += std::to_string(error.retry_after_s);
    out += "\r\n";
  }
  out += "\r\n";
  if (!head_only) out += body;
}

void append_own_response(int status, std::string_view content_type, std::string_view body,
                         std::string_view request_id, bool keep_alive, bool head_only,
                         std::string& out) {
  append_head(status, content_type, body.size(), request_id, keep_alive, out);
  out += "\r\n";
  if (!head_only) out += body;
}

void append_error_event(Api api, const OwnError& error, std::string& out) {
  switch (api) {
    case Api::kMessages:
      out += "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":";
      append_json_string(out, error.type);
      out += ",\"message\":";
      append_json_string(out, error.message);
      out += "}}";
      break;
    case Api::kResponses:
      // The stream's own numbering is not followed, so the event carries number 0.
      out += "event: error\ndata: {\"type\":\"error\",\"code\":";
      append_json_string(out, error.code.empty() ? error.type : error.code);
      out += ",\"message\":";
      append_json_string(out, error.message);
      out += ",\"param\":";
      append_or_null(out, error.param);
      out += ",\"sequence_number\":0}";
      break;
    case Api::kChat:
    case Api::kCompletions:
    case Api::kOther:
      out += "data: ";
      append_error_body(error, out);
      break;
  }
  out += "\n\n";
}

}  // namespace pointsman
