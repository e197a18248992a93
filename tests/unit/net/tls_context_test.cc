#include "net/tls_context.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "support/certificates.h"

namespace pointsman {
namespace {

using test::Certificate;
using test::make_certificate;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TlsContextTest : public ::testing::Test {
 protected:
  TlsContextTest() {
    folder_.write("ca", ca_);
    folder_.write("own", own_);
  }
  [[nodiscard]] std::string fault(TlsFiles files) const {
    const Result<std::unique_ptr<TlsServer>> server =
        TlsServer::load({.files = std::move(files), .only_13 = false});
    return server ? std::string() : server.error().message;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

  // The serial number of the certificate that new connections show.
  static long serial(const TlsServer& server) {
    SSL* const connection = server.accept();
    const long serial = ASN1_INTEGER_get(X509_get0_serialNumber(SSL_get_certificate(connection)));
    SSL_free(connection);
    return serial;
  }

  test::CertificateFolder folder_;
  Certificate ca_ = make_certificate({.subject = "test CA", .ca = true});
  Certificate own_ = make_certificate({}, &ca_);
};

TEST_F(TlsContextTest, SaysWhatIsWrongWithTheFiles) {
  const std::string certificate = path("own.crt");
  const std::string key = path("own.key");
  EXPECT_EQ(fault({certificate, key, path("ca.crt")}), "");
  EXPECT_EQ(fault({path("none"), key, ""}),
            "certificate: '" + path("none") + "' cannot be read: No such file or directory");
  EXPECT_EQ(fault({certificate, path("none"), ""}),
            "key: '" + path("none") + "' cannot be read: No such file or directory");
  EXPECT_EQ(fault({certificate, key, path("none")}),
            "ca: '" + path("none") + "' cannot be read: No such file or directory");
  const std::string empty = folder_.write_text("empty", "");
  EXPECT_EQ(fault({empty, key, ""}), "certificate: '" + empty + "' is empty");
  const std::string text = folder_.write_text("text", "no certificate\n");
  EXPECT_THAT(fault({text, key, ""}),
              StartsWith("certificate: '" + text + "' holds no certificate that can be used"));
  EXPECT_THAT(fault({certificate, text, ""}),
              StartsWith("key: '" + text + "' holds no private key that can be used"));
  EXPECT_THAT(fault({certificate, key, text}),
              StartsWith("ca: '" + text + "' holds no certificate that can be used"));
  folder_.write("other", make_certificate({}));
  EXPECT_EQ(fault({certificate, path("other.key"), ""}),
            "key: '" + path("other.key") + "' does not belong to the certificate in '" +
                certificate + "'");
  folder_.write_encrypted_key("locked.key", own_);
  EXPECT_EQ(fault({certificate, path("locked.key"), ""}),
            "key: '" + path("locked.key") + "' is encrypted; a key without a passphrase is needed");
  EXPECT_THAT(fault({certificate, "", ""}), StartsWith("certificate: '" + certificate + "' holds"));
}

TEST_F(TlsContextTest, KnowsWhenItEndsAndWhatIsDoubtful) {
  const auto doubt = [&](long from_s, long to_s) {
    folder_.write("dated", make_certificate({.from_s = from_s, .to_s = to_s}, &ca_));
    return (*TlsServer::load({.files = {path("dated.crt"), path("dated.key"), ""}}))->doubt();
  };
  constexpr long kDay = 24 * 3600;
  EXPECT_EQ(doubt(-kDay, 30 * kDay), "");
  EXPECT_THAT(doubt(-kDay, -1), HasSubstr("has expired"));
  EXPECT_THAT(doubt(kDay, 2 * kDay), HasSubstr("is not valid before"));
  EXPECT_THAT(doubt(-kDay, kDay), HasSubstr("expires soon"));
  const auto before = std::chrono::system_clock::now();
  folder_.write("dated", make_certificate({.to_s = kDay}, &ca_));
  const auto end =
      (*TlsServer::load({.files = {path("dated.crt"), path("dated.key"), ""}}))->expires();
  ASSERT_TRUE(end.has_value());
  EXPECT_LE(std::chrono::abs(*end - before - std::chrono::hours(24)), std::chrono::seconds(5));
}

TEST_F(TlsContextTest, NewFilesAreUsedOnceTheyHaveStayedTheSame) {
  const std::unique_ptr<TlsServer> server =
      std::move(*TlsServer::load({.files = {path("own.crt"), path("own.key"), ""}}));
  const long first = serial(*server);
  EXPECT_EQ(server->reload(false), TlsContext::Reload::kUnchanged);
  folder_.write("own", make_certificate({}, &ca_));
  EXPECT_EQ(server->reload(false), TlsContext::Reload::kUnchanged);  // it may still change
  EXPECT_EQ(serial(*server), first);
  EXPECT_EQ(server->reload(false), TlsContext::Reload::kReloaded);
  EXPECT_NE(serial(*server), first);
  EXPECT_EQ(server->reload(false), TlsContext::Reload::kUnchanged);
  EXPECT_EQ(server->reloads().good, 1U);
}

TEST_F(TlsContextTest, FilesThatCannotBeUsedLeaveThoseFromBefore) {
  const std::unique_ptr<TlsServer> server =
      std::move(*TlsServer::load({.files = {path("own.crt"), path("own.key"), ""}}));
  const long first = serial(*server);
  folder_.write_text("own.key", "half a key");
  EXPECT_EQ(server->reload(true), TlsContext::Reload::kFailed);
  EXPECT_THAT(server->problem(), StartsWith("key: "));
  EXPECT_EQ(serial(*server), first);
  // Told once, not each second.
  EXPECT_EQ(server->reload(false), TlsContext::Reload::kUnchanged);
  std::filesystem::remove(path("own.key"));
  EXPECT_EQ(server->reload(true), TlsContext::Reload::kFailed);
  folder_.write("own", make_certificate({}, &ca_));
  EXPECT_EQ(server->reload(true), TlsContext::Reload::kReloaded);
  EXPECT_EQ(server->problem(), "");
  EXPECT_EQ(server->reloads().failed, 2U);
}

TEST_F(TlsContextTest, ClientsWithTheSameOptionsAreOne) {
  TlsClients clients;
  const TlsClient::Options options{.files = {"", "", path("ca.crt")}};
  std::shared_ptr<TlsClient> one = *clients.get(options);
  EXPECT_EQ(one, *clients.get(options));
  EXPECT_NE(one, *clients.get({.files = options.files, .insecure = true}));
  EXPECT_EQ(clients.all().size(), 1U);
  EXPECT_FALSE(clients.get({.files = {"", "", path("none")}}).ok());
}

}  // namespace
}  // namespace pointsman
