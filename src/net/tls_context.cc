#include "net/tls_context.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "net/tls_error.h"
#include "net/tls_session.h"

namespace pointsman {
namespace {

// Mozilla's "intermediate" recommendation (https://ssl-config.mozilla.org), less the suites of
// finite fields: they ask the server for more work than the client.
constexpr const char* kCiphers =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
constexpr const char* kCiphers13 =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kGroups = "X25519:P-256:P-384";

constexpr std::chrono::hours kSoon{24 * 14};

Error fault(std::string_view what, const std::string& path, const std::string& why) {
  return {ErrorKind::kClient, std::string(what) + ": '" + path + "' " + why};
}

// Whether the file can be opened; OpenSSL's own words for that are hard to read.
Result<void> check_readable(std::string_view what, const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  char first = 0;
  if (file && std::fread(&first, 1, 1, file.get()) == 1) return {};
  const int error = errno;
  if (file && std::ferror(file.get()) == 0) return fault(what, path, "is empty");
  return fault(what, path, "cannot be read: " + std::generic_category().message(error));
}

// Instead of asking at the terminal.
int refuse_passphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Result<void> use_certificate(SSL_CTX& context, const TlsFiles& files) {
  if (Result<void> readable = check_readable("certificate", files.certificate); !readable) {
    return readable;
  }
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(&context, files.certificate.c_str()) != 1) {
    return fault("certificate", files.certificate,
                 "holds no certificate that can be used: " + last_tls_file_error());
  }
  const bool own_file = !files.key.empty();
  const std::string& key = own_file ? files.key : files.certificate;
  const std::string what = own_file ? "key" : "certificate";
  if (Result<void> readable = check_readable(what, key); !readable) return readable;
  bool encrypted = false;
  SSL_CTX_set_default_passwd_cb(&context, &refuse_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(&context, &encrypted);
  ERR_clear_error();
  const bool used = SSL_CTX_use_PrivateKey_file(&context, key.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(&context, nullptr);
  if (used && SSL_CTX_check_private_key(&context) == 1) return {};
  if (encrypted) return fault(what, key, "is encrypted; a key without a passphrase is needed");
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  if (ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_X509 &&
      (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH)) {
    return fault(what, key, "does not belong to the certificate in '" + files.certificate + "'");
  }
  return fault(what, key, "holds no private key that can be used: " + last_tls_file_error());
}

Result<void> use_ca(SSL_CTX& context, const std::string& ca) {
  if (Result<void> readable = check_readable("ca", ca); !readable) return readable;
  ERR_clear_error();
  if (SSL_CTX_load_verify_file(&context, ca.c_str()) != 1) {
    return fault("ca", ca, "holds no certificate that can be used: " + last_tls_file_error());
  }
  // One that is named is believed, be it a root or not.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(&context), X509_V_FLAG_PARTIAL_CHAIN);
  return {};
}

Result<std::shared_ptr<SSL_CTX>> new_context(const SSL_METHOD* method, bool only_13) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(method), &SSL_CTX_free);
  if (!context) {
    return Error{ErrorKind::kInternal,
                 "certificate: OpenSSL cannot be used: " + last_tls_file_error()};
  }
  SSL_CTX& c = *context;
  SSL_CTX_set_min_proto_version(&c, only_13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(&c, kCiphers);
  SSL_CTX_set_ciphersuites(&c, kCiphers13);
  SSL_CTX_set1_groups_list(&c, kGroups);
  SSL_CTX_set_options(&c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A silent connection holds no buffers; what is written again may have moved meanwhile; one call
  // of the system fetches all that has come.
  SSL_CTX_set_mode(&c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                           SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(&c, 1);
  return context;
}

std::chrono::system_clock::time_point time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

std::string day_of(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return text.data();
}

}  // namespace

// --- TlsContext ----------------------------------------------------------------------------------

TlsContext::Stamp TlsContext::stamp() const {
  Stamp stamp;
  for (const std::string* file : {&files_.certificate, &files_.key, &files_.ca}) {
    struct stat status{};
    if (file->empty() || ::stat(file->c_str(), &status) != 0) {
      stamp.emplace_back(0, 0, 0, 0);
    } else {
      stamp.emplace_back(status.st_ino, status.st_size, status.st_mtim.tv_sec,
                         status.st_mtim.tv_nsec);
    }
  }
  return stamp;
}

Result<void> TlsContext::load(const Build& build) {
  build_ = build;
  Stamp before = stamp();
  Result<Context> built = build_(files_);
  if (!built) return built.error();
  const std::lock_guard lock(mutex_);
  loaded_ = seen_ = std::move(before);
  context_ = std::move(*built);
  return {};
}

TlsContext::Reload TlsContext::reload(bool at_once) {
  Stamp now = stamp();
  {
    const std::lock_guard lock(mutex_);
    const bool still = now == std::exchange(seen_, now);
    if (!at_once && (now == loaded_ || !still)) return Reload::kUnchanged;
    loaded_ = std::move(now);
  }
  Result<Context> built = build_(files_);
  const std::lock_guard lock(mutex_);
  if (!built) {
    problem_ = built.error().message;
    ++reloads_.failed;
    return Reload::kFailed;
  }
  problem_.clear();
  ++reloads_.good;
  context_ = std::move(*built);
  return Reload::kReloaded;
}

TlsContext::Context TlsContext::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

TlsContext::Reloads TlsContext::reloads() const {
  const std::lock_guard lock(mutex_);
  return reloads_;
}

std::string TlsContext::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::optional<std::chrono::system_clock::time_point> TlsContext::expires() const {
  const Context own = context();
  X509* const leaf = SSL_CTX_get0_certificate(own.get());
  if (leaf == nullptr) return std::nullopt;
  auto first = time_of(X509_get0_notAfter(leaf));
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(own.get(), static_cast<void*>(&chain));
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    first = std::min(first, time_of(X509_get0_notAfter(sk_X509_value(chain, i))));
  }
  return first;
}

std::string TlsContext::doubt() const {
  const auto end = expires();
  if (!end) return "";
  const auto now = std::chrono::system_clock::now();
  const std::string quoted = "'" + files_.certificate + "' ";
  if (*end <= now) return quoted + "has expired (" + day_of(*end) + ")";
  const Context own = context();
  const auto begin = time_of(X509_get0_notBefore(SSL_CTX_get0_certificate(own.get())));
  if (begin > now) return quoted + "is not valid before " + day_of(begin);
  if (*end - now < kSoon) return quoted + "expires soon (" + day_of(*end) + ")";
  return "";
}

// --- TlsServer -----------------------------------------------------------------------------------

TlsServer::TlsServer(Options options) : TlsContext(options.files), options_(std::move(options)) {
  for (const std::string& protocol : options_.protocols) {
    wire_protocols_ += static_cast<char>(protocol.size());
    wire_protocols_ += protocol;
  }
}

Result<std::unique_ptr<TlsServer>> TlsServer::load(Options options) {
  std::unique_ptr<TlsServer> server(new TlsServer(std::move(options)));
  TlsServer* const self = server.get();
  const Result<void> loaded =
      server->TlsContext::load([self](const TlsFiles& files) { return self->build(files); });
  if (!loaded) return loaded.error();
  return server;
}

Result<TlsContext::Context> TlsServer::build(const TlsFiles& files) const {
  Result<Context> made = new_context(TLS_server_method(), options_.only_13);
  if (!made) return made;
  SSL_CTX& c = **made;
  if (Result<void> used = use_certificate(c, files); !used) return used.error();
  SSL_CTX_set_alpn_select_cb(&c, &choose_protocol, const_cast<TlsServer*>(this));  // NOLINT(*-cast)
  // Tickets carry all that a session needs; a cache beside them would be memory that clients fill.
  SSL_CTX_set_session_cache_mode(&c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(&c, 1);
  constexpr unsigned char kSessionName[] = "pointsman";
  SSL_CTX_set_session_id_context(&c, kSessionName, sizeof kSessionName - 1);
  if (!files.ca.empty()) {
    if (Result<void> used = use_ca(c, files.ca); !used) return used.error();
    SSL_CTX_set_client_CA_list(&c, SSL_load_client_CA_file(files.ca.c_str()));
    SSL_CTX_set_verify(&c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return made;
}

int TlsServer::choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size,
                               const unsigned char* offered, unsigned offered_size, void* self) {
  const std::string& own = static_cast<const TlsServer*>(self)->wire_protocols_;
  unsigned char* found = nullptr;
  const int outcome =
      SSL_select_next_proto(&found, size, reinterpret_cast<const unsigned char*>(own.data()),
                            static_cast<unsigned>(own.size()), offered, offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL* TlsServer::accept() const {
  SSL* const connection = SSL_new(context().get());
  if (connection != nullptr) SSL_set_accept_state(connection);
  return connection;
}

// --- TlsClient -----------------------------------------------------------------------------------

TlsClient::TlsClient(Options options) : TlsContext(options.files), options_(std::move(options)) {}

Result<std::shared_ptr<TlsClient>> TlsClient::load(Options options) {
  std::shared_ptr<TlsClient> client(new TlsClient(std::move(options)));
  TlsClient* const self = client.get();
  const Result<void> loaded =
      client->TlsContext::load([self](const TlsFiles& files) { return self->build(files); });
  if (!loaded) return loaded.error();
  return client;
}

Result<TlsContext::Context> TlsClient::build(const TlsFiles& files) const {
  Result<Context> made = new_context(TLS_client_method(), false);
  if (!made) return made;
  SSL_CTX& c = **made;
  if (!files.certificate.empty()) {
    if (Result<void> used = use_certificate(c, files); !used) return used.error();
  }
  if (!files.ca.empty()) {
    if (Result<void> used = use_ca(c, files.ca); !used) return used.error();
  } else if (!options_.insecure && SSL_CTX_set_default_verify_paths(&c) != 1) {
    return Error{ErrorKind::kClient,
                 "ca: the system's certificates cannot be used: " + last_tls_file_error()};
  }
  SSL_CTX_set_verify(&c, options_.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  constexpr unsigned char kProtocol[] = "\x08http/1.1";
  SSL_CTX_set_alpn_protos(&c, kProtocol, sizeof kProtocol - 1);
  TlsSession::enable(&c);
  return made;
}

SSL* TlsClient::connect(const std::string& name) const {
  SSL* const connection = SSL_new(context().get());
  if (connection == nullptr) return nullptr;
  SSL_set_connect_state(connection);
  if (name_peer(connection, name)) return connection;
  SSL_free(connection);
  return nullptr;
}

bool TlsClient::name_peer(SSL* connection, const std::string& name) const {
  std::array<unsigned char, 16> address{};
  const bool is_address = ::inet_pton(AF_INET, name.c_str(), address.data()) == 1 ||
                          ::inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
  if (is_address) {
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection), name.c_str()) == 1;
  }
  // The root's point is no part of a name in TLS.
  const std::string host = name.ends_with('.') ? name.substr(0, name.size() - 1) : name;
  SSL_set_hostflags(connection, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  return SSL_set_tlsext_host_name(connection, host.c_str()) == 1 &&
         SSL_set1_host(connection, host.c_str()) == 1;
}

// --- TlsClients ----------------------------------------------------------------------------------

Result<std::shared_ptr<TlsClient>> TlsClients::get(const TlsClient::Options& options) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<TlsClient>& known = known_[options];
  if (std::shared_ptr<TlsClient> client = known.lock()) return client;
  Result<std::shared_ptr<TlsClient>> loaded = TlsClient::load(options);
  if (loaded) {
    known = *loaded;
  } else {
    known_.erase(options);
  }
  return loaded;
}

std::vector<std::shared_ptr<TlsClient>> TlsClients::all() const {
  std::vector<std::shared_ptr<TlsClient>> clients;
  const std::lock_guard lock(mutex_);
  for (const auto& [options, client] : known_) {
    if (std::shared_ptr<TlsClient> alive = client.lock()) clients.push_back(std::move(alive));
  }
  return clients;
}

}  // namespace pointsman
