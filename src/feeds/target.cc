#include "feeds/target.h"

#include <simdjson.h>

#include "http/url.h"

namespace pointsman {
namespace {

constexpr std::size_t kLongestText = 120;

// {"error": {"message": …}}, {"error": …}, {"message": …} or {"detail": …}, as engines send it.
std::string message_in(const std::string& body) {
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  if (body.empty() || parser.parse(body).get(json) != simdjson::SUCCESS) return {};
  for (const char* path : {"/error/message", "/error", "/message", "/detail"}) {
    std::string_view text;
    if (json.at_pointer(path).get(text) == simdjson::SUCCESS) return std::string(text);
  }
  return {};
}

}  // namespace

HttpGetRequest request_to(const ReplicaSpec& spec, std::uint16_t port, std::string_view path) {
  HttpGetRequest request;
  request.host = spec.host;
  request.port = port == 0 ? spec.port : port;
  request.authority =
      request.port == spec.port ? spec.authority : authority_of(spec.host, request.port);
  request.target = spec.path_prefix;
  request.target += path;
  request.bearer = spec.api_key;
  request.tls = spec.tls;
  request.tls_name = spec.tls_name;
  return request;
}

std::string describe_answer(const HttpGetResult& result) {
  if (result.status == 0 || result.outcome != HttpGetResult::Outcome::kAnswered) {
    return result.detail;
  }
  std::string text = std::to_string(result.status);
  const std::string message = result.status < 300 ? std::string() : message_in(result.body);
  if (message.empty()) return text;
  text += ' ';
  for (const char c : std::string_view(message).substr(0, kLongestText)) {
    text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return text;
}

}  // namespace pointsman
