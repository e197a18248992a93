#pragma once

#include <openssl/ssl.h>

#include "base/intrusive.h"

namespace pointsman {

// The session of one server that a next connection may go on with, sparing both sides most of the
// handshake. It holds for the context that it was made with: after a reload, the new certificates
// are looked at. For one thread.
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

  SSL_SESSION* session_ = nullptr;
  SSL_CTX* context_ = nullptr;
};

}  // namespace pointsman
