#pragma once

#include <chrono>

#include <openssl/ssl.h>

#include "base/intrusive.h"

namespace pointsman {

// The session of one server that a next connection may go on with, sparing both sides most of the
// handshake. It holds for the context that it was made with, and no longer than ten minutes from
// the handshake that has verified the server's certificate. For one thread.
class TlsSession : public RefCounted<TlsSession> {
 public:
  TlsSession() = default;
  // The connection goes on with the session, where there is one, and leaves its next one here; the
  // session must outlive it.
  void attach(SSL* connection);
  void clear();

  // Has the connections of the context leave their sessions where they are attached to.
  static void enable(SSL_CTX* context);

 private:
  friend class RefCounted<TlsSession>;
  ~TlsSession() { clear(); }
  void on_unreferenced() { delete this; }
  static int keep(SSL* connection, SSL_SESSION* session);
  static int index();

  SSL_SESSION* session_ = nullptr;
  SSL_CTX* context_ = nullptr;
  std::chrono::steady_clock::time_point verified_{};
};

}  // namespace pointsman
