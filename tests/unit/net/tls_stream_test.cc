#include "net/tls_stream.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "net/tls_error.h"
#include "support/certificates.h"
#include "support/tls_peer.h"

namespace pointsman {
namespace {

using test::Certificate;
using test::make_certificate;
using test::TlsPeer;
using ::testing::HasSubstr;

// A stream and what it was told.
struct Told final : Stream::Events {
  explicit Told(IntrusivePtr<TlsStream> its_stream) : stream(std::move(its_stream)) {
    stream->attach(*this);
  }
  ~Told() { stream->close(); }
  void on_readable() override { ++readable; }
  void on_writable() override { ++writable; }

  IntrusivePtr<TlsStream> stream;
  int readable = 0;
  int writable = 0;
};

class TlsStreamTest : public ::testing::Test {
 protected:
  TlsStreamTest() {
    folder_.write("ca", ca_);
    folder_.write("server", make_certificate({}, &ca_));
  }

  std::unique_ptr<TlsServer> load_server(TlsServer::Options options = {}) {
    options.files.certificate = folder_.path("server.crt");
    options.files.key = folder_.path("server.key");
    Result<std::unique_ptr<TlsServer>> server = TlsServer::load(std::move(options));
    EXPECT_TRUE(server.ok()) << server.error().message;
    return std::move(*server);
  }

  // A server's stream, and a client over the other end.
  void open(int version = TLS1_3_VERSION) {
    if (server_ == nullptr) server_ = load_server();
    if (client_context_ == nullptr) client_context_ = test::client_context();
    SSL_CTX_set_max_proto_version(client_context_.get(), version);
    int both[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
    told_ = std::make_unique<Told>(
        IntrusivePtr<TlsStream>(new TlsStream(poller_, both[0], *server_, turns_)));
    peer_ = std::make_unique<TlsPeer>(both[1], client_context_.get(), false);
    told_->stream->want_write();
  }
  void shake_hands() {
    ASSERT_TRUE(turn_until([&] { return peer_->turn() && told_->writable > 0; }));
    ASSERT_FALSE(stream().connect_error()) << stream().connect_error().message();
    static_cast<void>(peer_->read());
    static_cast<void>(peer_->take_records());
  }
  void connect(int version = TLS1_3_VERSION) {
    open(version);
    shake_hands();
  }
  bool turn_until(const std::function<bool()>& holds) {
    for (int i = 0; i < 20'000; ++i) {
      if (holds()) return true;
      // What is sent over loopback comes at once, but for a machine that is busy elsewhere.
      poller_.wait(i < 1'000 ? 0 : 1);
    }
    return false;
  }
  TlsStream& stream() { return *told_->stream; }
  std::string read(std::size_t size = 1 << 16) {
    std::string bytes(size, '\0');
    last_ = stream().read(bytes.data(), size);
    bytes.resize(last_.bytes);
    return bytes;
  }
  std::string await_bytes() {
    const int before = told_->readable;
    stream().want_read();
    EXPECT_TRUE(turn_until([&] { return told_->readable > before; }));
    return read();
  }

  test::CertificateFolder folder_;
  Certificate ca_ = make_certificate({.subject = "test CA", .ca = true});
  Poller poller_;
  TlsTurns turns_;
  std::unique_ptr<TlsServer> server_;
  TlsPeer::Context client_context_{nullptr, &SSL_CTX_free};
  std::unique_ptr<Told> told_;
  std::unique_ptr<TlsPeer> peer_;
  IoResult last_;
};

TEST_F(TlsStreamTest, CarriesBytesBothWaysInBothVersions) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    connect(version);
    EXPECT_EQ(SSL_version(peer_->ssl()), version);
    EXPECT_EQ(stream().protocol(), "");
    EXPECT_FALSE(stream().resumed());
    peer_->write("request");
    EXPECT_EQ(await_bytes(), "request");
    EXPECT_EQ(stream().write("one ", "answer").bytes, 10U);
    EXPECT_TRUE(turn_until([&] { return peer_->read() == "one answer"; }));
  }
}

TEST_F(TlsStreamTest, OlderVersionsAreRefused) {
  open(TLS1_1_VERSION);
  SSL_CTX_set_security_level(client_context_.get(), 0);
  SSL_set_security_level(peer_->ssl(), 0);
  SSL_set_min_proto_version(peer_->ssl(), TLS1_VERSION);
  turn_until([&] {
    peer_->turn();
    return told_->writable > 0;
  });
  EXPECT_EQ(tls_failure_word(stream().connect_error()), "version");
  EXPECT_EQ(read(), "");
  EXPECT_EQ(last_.status, IoResult::Status::kError);
}

TEST_F(TlsStreamTest, ChoosesAProtocolAndRefusesThoseThatShareNone) {
  server_ = load_server({.files = {}, .protocols = {"h2", "http/1.1"}});
  const auto choose = [&](const std::string& offered) {
    open();
    SSL_set_alpn_protos(peer_->ssl(), reinterpret_cast<const unsigned char*>(offered.data()),
                        static_cast<unsigned>(offered.size()));
    turn_until([&] {
      peer_->turn();
      return told_->writable > 0;
    });
    return std::string(stream().protocol());
  };
  EXPECT_EQ(choose("\x08http/1.1\x02h2"), "h2");
  EXPECT_EQ(choose("\x08http/1.1"), "http/1.1");
  EXPECT_EQ(choose("\x04spdy"), "");
  EXPECT_EQ(tls_failure_word(stream().connect_error()), "cipher");
}

TEST_F(TlsStreamTest, AHandshakeInPiecesOfOneByteIsTheSame) {
  open();
  peer_->send_in_pieces_of(1);
  shake_hands();
  peer_->write("x");
  // The byte's record comes in pieces too.
  EXPECT_TRUE(turn_until([&] {
    peer_->turn();
    return read() == "x";
  }));
}

TEST_F(TlsStreamTest, ASessionIsResumedByItsTicket) {
  connect();
  SSL_SESSION* const session = SSL_get1_session(peer_->ssl());
  peer_->notify_close();  // OpenSSL does not go on with a session that was just dropped
  ASSERT_EQ(SSL_SESSION_is_resumable(session), 1);
  open();
  SSL_set_session(peer_->ssl(), session);
  SSL_SESSION_free(session);
  shake_hands();
  EXPECT_TRUE(stream().resumed());
}

// Bytes that are decrypted already make no edge.
TEST_F(TlsStreamTest, TellsOfWhatAReadLeft) {
  connect();
  peer_->write("abc");
  peer_->write("def");
  std::string all;
  for (int i = 1; i <= 6; ++i) {
    stream().want_read();
    const int before = told_->readable;
    ASSERT_TRUE(turn_until([&] { return told_->readable > before; })) << i;
    all += read(1);
  }
  EXPECT_EQ(all, "abcdef");
  stream().want_read();
  const int before = told_->readable;
  for (int i = 0; i < 10; ++i) poller_.wait(0);
  EXPECT_LE(told_->readable, before + 1);
  EXPECT_EQ(read(), "");
  EXPECT_EQ(last_.status, IoResult::Status::kWouldBlock);
}

TEST_F(TlsStreamTest, RecordsThatCameTogetherAreReadTogether) {
  connect();
  for (const char* event : {"one ", "two ", "three"}) peer_->write(event);
  EXPECT_EQ(await_bytes(), "one two three");
}

TEST_F(TlsStreamTest, SmallPartsShareARecord) {
  connect();
  EXPECT_EQ(stream().write("head", "body").bytes, 8U);
  EXPECT_EQ(peer_->take_records(), 1U);
  EXPECT_EQ(peer_->read(), "headbody");
  // Large ones fill whole records.
  const std::string body(40'000, 'b');
  EXPECT_EQ(stream().write("head", body).bytes, 40'004U);
  EXPECT_EQ(peer_->take_records(), 3U);
}

TEST_F(TlsStreamTest, WhatTheSocketDoesNotTakeIsWrittenAgain) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    connect(version);
    std::string much;
    for (int i = 0; much.size() < (4U << 20); ++i) much += std::to_string(i) + " ";
    std::string unsent = much;
    std::string arrived;
    bool blocked = false;
    while (!unsent.empty()) {
      // The buffer moves, and what was behind it comes with it.
      const std::string first = unsent.substr(0, 1000);
      const IoResult sent = stream().write(first, std::string_view(unsent).substr(first.size()));
      ASSERT_NE(sent.status, IoResult::Status::kError);
      unsent.erase(0, sent.bytes);
      if (!unsent.empty()) {
        blocked = true;
        const int before = told_->writable;
        stream().want_write();
        ASSERT_TRUE(turn_until([&] {
          arrived += peer_->read();
          return told_->writable > before;
        }));
      }
    }
    turn_until([&] {
      arrived += peer_->read();
      return arrived.size() >= much.size();
    });
    EXPECT_TRUE(blocked);
    EXPECT_TRUE(arrived == much);
  }
}

TEST_F(TlsStreamTest, AnAnnouncedEndIsAnEnd) {
  connect();
  peer_->write("last");
  peer_->notify_close();
  peer_->close();
  EXPECT_EQ(await_bytes(), "last");
  EXPECT_EQ(await_bytes(), "");
  EXPECT_EQ(last_.status, IoResult::Status::kEnd);
  EXPECT_TRUE(stream().ended());
}

TEST_F(TlsStreamTest, AnEndThatIsNotAnnouncedIsAnError) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    connect(version);
    peer_->write("last");
    peer_->close();
    EXPECT_EQ(await_bytes(), "last");
    EXPECT_EQ(await_bytes(), "");
    EXPECT_EQ(last_.status, IoResult::Status::kError);
    EXPECT_EQ(last_.error, tls_truncated());
  }
}

TEST_F(TlsStreamTest, BytesThatAreNotGenuineAreAnError) {
  connect();
  peer_->send_raw(std::string("\x17\x03\x03\x00\x14", 5) + std::string(20, 'x'));
  EXPECT_EQ(await_bytes(), "");
  EXPECT_EQ(last_.status, IoResult::Status::kError);
  EXPECT_EQ(stream().write("x").status, IoResult::Status::kError);
}

TEST_F(TlsStreamTest, EndingTheSendingSideIsAnnouncedAndReadingGoesOn) {
  connect();
  stream().write("bye");
  stream().shutdown_send();
  EXPECT_TRUE(turn_until([&] { return peer_->told_of_close(); }));
  peer_->write("still here");
  EXPECT_EQ(await_bytes(), "still here");
}

TEST_F(TlsStreamTest, ClosingAnnouncesTheEndAndResettingDoesNot) {
  connect();
  stream().close();
  EXPECT_TRUE(peer_->told_of_close());
  connect();
  stream().reset();
  EXPECT_FALSE(peer_->told_of_close());
}

TEST_F(TlsStreamTest, OtherThingsThanTlsAreTold) {
  const std::pair<std::string, std::string> cases[] = {
      {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "plain_http"},
      {"POST /v1/chat/completions HTTP/1.1\r\n\r\n", "plain_http"},
      {std::string(64, '\xff'), "not_tls"},
      {"SSH-2.0-OpenSSH_9.2p1\r\n", "not_tls"},
      {std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10), "not_tls"},
  };
  for (const auto& [bytes, word] : cases) {
    open();
    peer_->send_raw(bytes);
    ASSERT_TRUE(turn_until([&] { return told_->writable > 0; }));
    EXPECT_EQ(tls_failure_word(stream().connect_error()), word) << bytes;
  }
  open();
  peer_->close();
  ASSERT_TRUE(turn_until([&] { return told_->writable > 0; }));
  EXPECT_EQ(tls_failure_word(stream().connect_error()), "closed");
}

TEST_F(TlsStreamTest, NothingIsMadeBeforeTheFirstByte) {
  open();
  for (int i = 0; i < 5; ++i) poller_.wait(0);
  EXPECT_FALSE(stream().begun());
  peer_->send_raw("\x16");
  EXPECT_TRUE(turn_until([&] { return stream().begun(); }));
  EXPECT_TRUE(stream().handshaking());
}

TEST_F(TlsStreamTest, ARoundTakesNoMoreThanItsShareOfHandshakes) {
  server_ = load_server();
  client_context_ = test::client_context();
  std::vector<std::unique_ptr<Told>> streams;
  std::vector<std::unique_ptr<TlsPeer>> peers;
  for (int i = 0; i < 3 * TlsTurns::kPerRound; ++i) {
    int both[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
    streams.push_back(std::make_unique<Told>(
        IntrusivePtr<TlsStream>(new TlsStream(poller_, both[0], *server_, turns_))));
    peers.push_back(std::make_unique<TlsPeer>(both[1], client_context_.get(), false));
    peers.back()->turn();
  }
  const auto begun = [&] {
    return std::count_if(streams.begin(), streams.end(),
                         [](const auto& one) { return one->stream->begun(); });
  };
  for (int round = 1; round <= 3; ++round) {
    poller_.wait(0);
    EXPECT_EQ(begun(), round * TlsTurns::kPerRound);
  }
}

// --- towards a server ----------------------------------------------------------------------------

class TlsClientTest : public TlsStreamTest {
 protected:
  TlsClientTest() {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = {asio::ip::address_v4::loopback(), ntohs(address.sin_port)};
    use(make_certificate({}, &ca_));
  }
  ~TlsClientTest() override { ::close(listener_); }

  void use(const Certificate& certificate) {
    context_.reset(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_use_certificate(context_.get(), certificate.x509.get());
    SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
  }
  // Connects, and says how that ended.
  std::string outcome(const std::string& name, const TlsClient::Options& options) {
    Result<std::shared_ptr<TlsClient>> client = TlsClient::load(options);
    if (!client) return client.error().message;
    return outcome(name, *client);
  }
  std::string outcome(const std::string& name, const std::shared_ptr<TlsClient>& client) {
    told_ = std::make_unique<Told>(
        IntrusivePtr<TlsStream>(new TlsStream(poller_, client, name, session_)));
    const std::error_code error = stream().connect(endpoint_);
    if (error) return error.message();
    stream().want_write();
    peer_ = std::make_unique<TlsPeer>(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK),
                                      context_.get(), true);
    EXPECT_TRUE(turn_until([&] {
      peer_->turn();
      return told_->writable > 0;
    }));
    return stream().connect_error() ? stream().connect_error().message() : "connected";
  }
  [[nodiscard]] TlsClient::Options by_ca() const {
    return {.files = {.certificate = "", .key = "", .ca = folder_.path("ca.crt")}};
  }

  int listener_ = -1;
  asio::ip::tcp::endpoint endpoint_;
  TlsPeer::Context context_{nullptr, &SSL_CTX_free};
  IntrusivePtr<TlsSession> session_{new TlsSession};
};

TEST_F(TlsClientTest, BelievesARightCertificateAndShowsTheName) {
  EXPECT_EQ(outcome("localhost", by_ca()), "connected");
  EXPECT_STREQ(SSL_get_servername(peer_->ssl(), TLSEXT_NAMETYPE_host_name), "localhost");
  stream().write("hello ", "there");
  EXPECT_TRUE(turn_until([&] { return peer_->read() == "hello there"; }));
  EXPECT_EQ(outcome("localhost.", by_ca()), "connected");
  EXPECT_EQ(outcome("127.0.0.1", by_ca()), "connected");
  EXPECT_EQ(SSL_get_servername(peer_->ssl(), TLSEXT_NAMETYPE_host_name), nullptr);
}

TEST_F(TlsClientTest, SaysWhatIsWrongWithACertificate) {
  EXPECT_EQ(outcome("models.test", by_ca()), "hostname mismatch");
  EXPECT_EQ(outcome("127.0.0.2", by_ca()), "IP address mismatch");
  EXPECT_EQ(outcome("localhost", TlsClient::Options{}), "unable to get local issuer certificate");
  use(make_certificate({.from_s = -7200, .to_s = -3600}, &ca_));
  EXPECT_EQ(outcome("localhost", by_ca()), "certificate has expired");
  use(make_certificate({.from_s = 3600}, &ca_));
  EXPECT_EQ(outcome("localhost", by_ca()), "certificate is not yet valid");
  use(make_certificate({}));
  EXPECT_EQ(outcome("localhost", by_ca()), "self-signed certificate");
  // Each of these is believed where nothing is to be verified.
  EXPECT_EQ(outcome("models.test", TlsClient::Options{.files = {}, .insecure = true}), "connected");
}

TEST_F(TlsClientTest, ACertificateThatIsNamedItselfIsBelieved) {
  const Certificate own = make_certificate({});
  folder_.write("own", own);
  use(own);
  TlsClient::Options options;
  options.files.ca = folder_.path("own.crt");
  EXPECT_EQ(outcome("localhost", options), "connected");
}

TEST_F(TlsClientTest, ShowsItsOwnCertificate) {
  folder_.write("client", make_certificate({.subject = "router", .names = ""}, &ca_));
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_load_verify_file(context_.get(), folder_.path("ca.crt").c_str());
  TlsClient::Options options = by_ca();
  options.files.certificate = folder_.path("client.crt");
  options.files.key = folder_.path("client.key");
  EXPECT_EQ(outcome("localhost", options), "connected");
  EXPECT_TRUE(turn_until([&] { return peer_->turn(); }));
  // Without one it is told only afterwards, in TLS 1.3.
  EXPECT_EQ(outcome("localhost", by_ca()), "connected");
  turn_until([&] {
    peer_->turn();
    return !read().empty() || last_.status == IoResult::Status::kError;
  });
  EXPECT_THAT(last_.error.message(), HasSubstr("certificate required"));
}

TEST_F(TlsClientTest, GoesOnWithASessionOfTheSameContextAlone) {
  const std::shared_ptr<TlsClient> client = *TlsClient::load(by_ca());
  for (const bool resumed : {false, true}) {
    EXPECT_EQ(outcome("localhost", client), "connected");
    EXPECT_EQ(stream().resumed(), resumed);
    turn_until([&] { return peer_->turn(); });
    peer_->write("x");
    std::string got;  // the tickets come first
    turn_until([&] { return !(got += read()).empty(); });
    EXPECT_EQ(got, "x");
  }
  EXPECT_EQ(client->reload(true), TlsContext::Reload::kReloaded);
  EXPECT_EQ(outcome("localhost", client), "connected");
  EXPECT_FALSE(stream().resumed());
}

TEST_F(TlsClientTest, ARefusedConnectionSaysSo) {
  ::close(std::exchange(listener_, -1));
  const std::shared_ptr<TlsClient> client = *TlsClient::load(by_ca());
  told_ = std::make_unique<Told>(
      IntrusivePtr<TlsStream>(new TlsStream(poller_, client, "localhost", session_)));
  const std::error_code error = stream().connect(endpoint_);
  if (!error) {
    stream().want_write();
    ASSERT_TRUE(turn_until([&] { return told_->writable > 0; }));
  }
  EXPECT_EQ((error ? error : stream().connect_error()).value(), ECONNREFUSED);
}

TEST_F(TlsClientTest, AServerThatSpeaksNoTlsIsToldApart) {
  const std::shared_ptr<TlsClient> client = *TlsClient::load(by_ca());
  told_ = std::make_unique<Told>(
      IntrusivePtr<TlsStream>(new TlsStream(poller_, client, "localhost", session_)));
  ASSERT_FALSE(stream().connect(endpoint_));
  stream().want_write();
  const int accepted = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
  const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_GT(::send(accepted, answer.data(), answer.size(), 0), 0);
  ASSERT_TRUE(turn_until([&] { return told_->writable > 0; }));
  EXPECT_EQ(stream().connect_error().message(), "wrong version number");
  ::close(accepted);
}

}  // namespace
}  // namespace pointsman
