#include "net/tls_session.h"

#include <utility>

namespace pointsman {
namespace {

// Each session that goes on leaves another one: without an end, a certificate that has expired
// since would never be noticed.
constexpr std::chrono::minutes kLongest{10};

}  // namespace

// Of our place among what can be attached to a connection; OpenSSL's first one is Asio's.
int TlsSession::index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

void TlsSession::attach(SSL* connection) {
  SSL_set_ex_data(connection, index(), this);
  if (session_ != nullptr && context_ == SSL_get_SSL_CTX(connection) &&
      std::chrono::steady_clock::now() - verified_ < kLongest) {
    SSL_set_session(connection, session_);
  }
}

void TlsSession::clear() {
  SSL_SESSION_free(std::exchange(session_, nullptr));
  SSL_CTX_free(std::exchange(context_, nullptr));
}

void TlsSession::enable(SSL_CTX* context) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, &keep);
}

int TlsSession::keep(SSL* connection, SSL_SESSION* session) {
  auto* const kept = static_cast<TlsSession*>(SSL_get_ex_data(connection, index()));
  if (kept == nullptr) return 0;
  if (SSL_session_reused(connection) == 0) kept->verified_ = std::chrono::steady_clock::now();
  kept->clear();
  // A copy: OpenSSL gives the original up when the connection ends without ceremony.
  kept->session_ = SSL_SESSION_dup(session);
  kept->context_ = SSL_get_SSL_CTX(connection);
  SSL_CTX_up_ref(kept->context_);
  return 0;
}

}  // namespace pointsman
