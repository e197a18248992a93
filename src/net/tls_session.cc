#include "net/tls_session.h"

#include <utility>

namespace pointsman {

void TlsSession::attach(SSL* connection) {
  SSL_set_app_data(connection, this);
  if (session_ != nullptr && context_ == SSL_get_SSL_CTX(connection)) {
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
  auto* const kept = static_cast<TlsSession*>(SSL_get_app_data(connection));
  if (kept == nullptr) return 0;
  kept->clear();
  // A copy: OpenSSL gives the original up when the connection ends without ceremony.
  kept->session_ = SSL_SESSION_dup(session);
  kept->context_ = SSL_get_SSL_CTX(connection);
  SSL_CTX_up_ref(kept->context_);
  return 0;
}

}  // namespace pointsman
