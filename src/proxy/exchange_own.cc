// The part of the exchange that answers by itself: health, the model list, and refusals.

#include <string>

#include "http/openai_error.h"
#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

constexpr std::string_view kJson = "application/json";

// Of an answer with its head.
std::size_t body_bytes(std::string_view answer) {
  constexpr std::string_view kHeadEnd = "\r\n\r\n";
  const std::size_t head_end = answer.find(kHeadEnd);
  return head_end == std::string_view::npos ? 0 : answer.size() - head_end - kHeadEnd.size();
}

}  // namespace

void Exchange::answer_ready(bool alive_only) {
  const bool good = alive_only || (!shard_.draining() && shard_.any_usable());
  reply_document(good ? 200 : 503, kJson, good ? R"({"status":"ok"})" : R"({"status":"unready"})");
}

// With no usable replica nothing is known of what could be served now.
void Exchange::answer_models() {
  if (!shard_.any_usable()) return refuse_unserved();
  std::string& document = shard_.body_scratch();
  document.clear();
  shard_.deps().append_models(document);
  reply_document(200, kJson, document);
}

void Exchange::refuse_path() {
  reply_own({.status = 404,
             .type = "invalid_request_error",
             .message = "nothing is served at this path",
             .kind = "not_found"});
}

void Exchange::refuse_unserved() {
  reply_own({.status = 503,
             .type = "upstream_error",
             .message = "no replica can take the request now",
             .kind = "no_replica",
             .retry_after_s = 1});
}

void Exchange::refuse_body() {
  const std::string message = "the request's body is larger than limits.request_body (" +
                              std::to_string(shard_.options().limits.request_body) + " bytes)";
  reply_own({.status = 413,
             .type = "invalid_request_error",
             .message = message,
             .kind = "body_too_large"});
}

void Exchange::refuse_bad_body() {
  reply_own({.status = 400,
             .type = "invalid_request_error",
             .message = body_.problem(),
             .kind = "bad_body"});
}

void Exchange::refuse_model() {
  const std::string message = "the model `" + facts_.model + "` does not exist";
  reply_own({.status = 404,
             .type = "invalid_request_error",
             .message = message,
             .kind = "unknown_model",
             .code = "model_not_found",
             .param = "model"});
}

void Exchange::reply_own(const OwnError& error) {
  release_charge(Feedback::Event::kCancelled);
  key_.give_back();
  status_ = error.status;
  error_word_ = error.kind;
  shard_.metrics().own_errors.add(error.kind);
  client_keeps_ = keep_alive_ && request_consumed() && !shard_.closing_idle();
  std::string& answer = shard_.scratch();
  append_error_response(error, request_id(), client_keeps_, method_ == "HEAD", answer);
  response_bytes_ += body_bytes(answer);
  client_->send(answer);
  finish(client_keeps_ ? ClientConnection::Ending::kKeep : ClientConnection::Ending::kClose);
}

void Exchange::reply_document(int status, std::string_view content_type, std::string_view body) {
  key_.give_back();
  status_ = status;
  client_keeps_ = keep_alive_ && request_consumed() && !shard_.closing_idle();
  std::string& answer = shard_.scratch();
  append_own_response(status, content_type, body, request_id(), client_keeps_, method_ == "HEAD",
                      answer);
  response_bytes_ += body_bytes(answer);
  client_->send(answer);
  finish(client_keeps_ ? ClientConnection::Ending::kKeep : ClientConnection::Ending::kClose);
}

}  // namespace pointsman
