// The part of the exchange that judges its client: whether a key lets it in, and what of its
// headers counts.

#include <string>

#include "access/api_key.h"
#include "http/openai_error.h"
#include "proxy/exchange.h"
#include "proxy/proxy_shard.h"

namespace pointsman {
namespace {

// A browser asks so before it sends a request of another origin, and shows no key (Fetch, 4.8). It
// has no body and sets nothing off.
bool is_preflight(const RequestHead& head) {
  return head.method() == "OPTIONS" && !head.has_body() && head.find("origin") &&
         head.find("access-control-request-method");
}

}  // namespace

// What tells routers where a request has to go is taken from clients that are trusted alone.
void Exchange::judge_steering() {
  if (client_->trusted()) return;
  request_parser_.head().hide_steering();
  shard_.metrics().steering_removed.add();
}

// Whether the request may go on: no key is asked for, or its key is known and has room. Where not,
// it has been answered.
bool Exchange::admitted() {
  const KeySet* const keys = shard_.keys();
  if (keys == nullptr) return true;
  const RequestHead& head = request_parser_.head();
  const std::string_view shown[] = {
      bearer_token(head.find(HeaderId::kAuthorization).value_or("")),
      head.find(HeaderId::kXApiKey).value_or(""),
  };
  const std::shared_ptr<KeyUse>* use = nullptr;
  for (const std::string_view key : shown) {
    if (use == nullptr && !key.empty()) use = keys->find(hash_of_key(key));
  }
  if (use == nullptr) {
    if (is_preflight(head)) return true;
    refuse_key(!shown[0].empty() || !shown[1].empty());
    return false;
  }
  key_ = KeyLease(*use);
  if (key_.held()) return true;
  refuse_for_limit();
  return false;
}

// As OpenAI's own servers say it.
void Exchange::refuse_key(bool shown) {
  reply_own({.status = 401,
             .type = "invalid_request_error",
             .message = shown
                            ? "the API key is not valid here"
                            : "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
             .kind = shown ? "wrong_key" : "no_key",
             .code = "invalid_api_key"});
}

void Exchange::refuse_for_limit() {
  const std::string message = "the API key has " + std::to_string(key_.limit()) +
                              " requests under way, which is as many as it may have at a time";
  reply_own({.status = 429,
             .type = "rate_limit_error",
             .message = message,
             .kind = "key_limit",
             .code = "rate_limit_exceeded",
             .retry_after_s = 1});
}

}  // namespace pointsman
