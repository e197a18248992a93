#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <openssl/types.h>

#include "base/result.h"

namespace pointsman {

// The files of one side of TLS, all PEM.
struct TlsFiles {
  std::string certificate;  // with the chain behind it
  std::string key;          // empty: in the same file as the certificate
  std::string ca;           // whose certificates are accepted from the other side

  auto operator<=>(const TlsFiles&) const = default;
};

// What the files make: a context that new connections are made from, and read again when the files
// change. Connections keep the context that they were made from. Thread-safe.
class TlsContext {
 public:
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  enum class Reload : std::uint8_t { kUnchanged, kReloaded, kFailed };
  // Reads the files again if they have changed, and have not changed further since the call before:
  // a certificate and its key are seldom replaced in the same instant. `at_once` does not wait for
  // that. Files that cannot be used leave all as it was; problem() tells.
  Reload reload(bool at_once);

  // What was wrong with the files that were read last; empty: nothing.
  [[nodiscard]] std::string problem() const;
  // How often files that had changed were read, and how often they were of use.
  struct Reloads {
    std::uint64_t good = 0;
    std::uint64_t failed = 0;
  };
  [[nodiscard]] Reloads reloads() const;
  // When the own certificate, or one of its chain, ceases to be valid first; nothing where there is
  // none.
  [[nodiscard]] std::optional<std::chrono::system_clock::time_point> expires() const;
  // What is doubtful about the own certificate, for a person; empty: nothing.
  [[nodiscard]] std::string doubt() const;
  [[nodiscard]] const TlsFiles& files() const { return files_; }

 protected:
  using Context = std::shared_ptr<SSL_CTX>;
  using Build = std::function<Result<Context>(const TlsFiles&)>;

  // Of each file, what tells a change.
  using Stamp = std::vector<std::tuple<std::uint64_t, std::int64_t, std::int64_t, std::int64_t>>;

  explicit TlsContext(TlsFiles files) : files_(std::move(files)) {}
  ~TlsContext() = default;

  Result<void> load(const Build& build);
  [[nodiscard]] Context context() const;

 private:
  [[nodiscard]] Stamp stamp() const;

  const TlsFiles files_;
  Build build_;
  mutable std::mutex mutex_;
  Context context_;
  std::string problem_;
  Reloads reloads_;
  Stamp loaded_;  // of the files that were read last
  Stamp seen_;    // at the last look
};

// TLS towards clients: versions 1.2 and 1.3, the suites of Mozilla's "intermediate" list without
// those of finite fields, no renegotiation, no compression, no early data. Session tickets are
// encrypted with a key that is made at the start and at each reload.
class TlsServer final : public TlsContext {
 public:
  struct Options {
    TlsFiles files;  // with a `ca`, clients must show a certificate that it has signed
    bool only_13 = false;
    // By ALPN, in the order of preference. A client that offers others only is refused; one that
    // does not ask speaks the last one.
    std::vector<std::string> protocols = {"http/1.1"};
  };

  // Errors begin with the name of what is at fault: "certificate: …", "key: …", "ca: …".
  static Result<std::unique_ptr<TlsServer>> load(Options options);

  // A connection's state, to be freed by SSL_free(). Null where memory lacks.
  [[nodiscard]] SSL* accept() const;

 private:
  explicit TlsServer(Options options);
  Result<Context> build(const TlsFiles& files) const;
  static int choose_protocol(SSL* connection, const unsigned char** chosen, unsigned char* size,
                             const unsigned char* offered, unsigned offered_size, void* self);

  const Options options_;
  std::string wire_protocols_;  // as ALPN writes them
};

// TLS towards replicas. Their certificates are verified: by the given `ca` or the system's, and by
// their name.
class TlsClient final : public TlsContext {
 public:
  struct Options {
    TlsFiles files;         // `certificate`: shown to replicas that ask; `ca`: empty: the system's
    bool insecure = false;  // nothing is verified: anyone may be the replica

    auto operator<=>(const Options&) const = default;
  };

  static Result<std::shared_ptr<TlsClient>> load(Options options);

  // A connection's state for a server of that name, or address, which its certificate must have.
  // To be freed by SSL_free(). Null where memory lacks.
  [[nodiscard]] SSL* connect(const std::string& name) const;
  // For those who make the connection's state themselves; name_peer() then does what connect() does
  // beside that.
  [[nodiscard]] std::shared_ptr<SSL_CTX> shared_context() const { return context(); }
  bool name_peer(SSL* connection, const std::string& name) const;

  [[nodiscard]] bool insecure() const { return options_.insecure; }

 private:
  explicit TlsClient(Options options);
  Result<Context> build(const TlsFiles& files) const;

  const Options options_;
};

// The clients of a process, one for each set of options: a thousand replicas that share their CA
// share its certificates too. Thread-safe.
class TlsClients {
 public:
  Result<std::shared_ptr<TlsClient>> get(const TlsClient::Options& options);

  // All that are in use.
  [[nodiscard]] std::vector<std::shared_ptr<TlsClient>> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<TlsClient::Options, std::weak_ptr<TlsClient>> known_;
};

}  // namespace pointsman
