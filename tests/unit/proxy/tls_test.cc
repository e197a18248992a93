#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "proxy/tls_arrivals.h"
#include "support/certificates.h"
#include "support/proxy_test.h"
#include "support/tls_listener.h"
#include "support/tls_peer.h"
#include "support/tls_socket.h"

namespace pointsman::test {
namespace {

constexpr char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    folder_.write("ca", ca_);
    folder_.write("own", make_certificate({}, &ca_));
    server_ = std::move(*TlsServer::load({.files = {path("own.crt"), path("own.key"), ""}}));
    SSL_CTX_load_verify_file(context_.get(), path("ca.crt").c_str());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }

  CertificateFolder folder_;
  Certificate ca_ = make_certificate({.subject = "test CA", .ca = true});
  std::unique_ptr<TlsServer> server_;
  TlsPeer::Context context_ = client_context();
};

TEST_F(TlsTest, ServesClientsOfSeveralThreadsWhileCertificatesChange) {
  FakeReplica replica([](FakeConnection& connection) {
    while (!connection.read_request().empty()) connection.send(kAnswer);
  });
  ProxyOptions options;
  options.threads = 2;
  ProxyRig rig(options);
  rig.tls = server_.get();
  rig.add(replica.port());
  rig.start();
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        TlsSocket client(TlsSocket::connected(rig.port()), context_.get(), false);
        for (int request = 0; request < 2 && client.open(); ++request) {
          client.send(post("/v1/chat/completions", kChat));
          if (client.read_until("fine").ends_with("fine")) ++served;
        }
        client.end();
      }
    });
  }
  int reloads = 0;
  while (served < 60) {
    folder_.write("own", make_certificate({}, &ca_));
    if (server_->reload(true) == TlsContext::Reload::kReloaded) ++reloads;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 80);
  EXPECT_GT(reloads, 0);
  EXPECT_EQ(rig.sum([](const auto& shard) { return shard.tls_full.value(); }), 40U);
  EXPECT_TRUE(ProxyRig::eventually([&] {
    return rig.sum([](const auto& shard) { return shard.client_connections.value(); }) == 0;
  }));
}

TEST_F(TlsTest, AReplicaIsSpokenToByTlsAndItsSessionGoesOn) {
  TlsListener replica(make_certificate({}, &ca_), [](TlsSocket& connection) {
    connection.read_until(kChat);
    connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfine");
    connection.end();
  });
  TlsClient::Options by_ca;
  by_ca.files.ca = path("ca.crt");
  ProxyRig rig;
  rig.add(replica.port(), *TlsClient::load(by_ca));
  rig.start();
  for (int i = 0; i < 3; ++i) {
    RawClient client(rig.port());
    client.send(post("/v1/chat/completions", kChat));
    EXPECT_THAT(client.read_answer(), EndsWith("fine"));
  }
  EXPECT_EQ(replica.resumed(), 2);
}

class TlsArrivalsTest : public TlsTest {
 protected:
  int add() {
    int both[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
    arrivals_.add(both[0], {}, {});
    return both[1];
  }
  // Whether the other end has been closed.
  static bool closed(int socket) {
    char byte = 0;
    return ::recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
  }
  std::uint64_t failures(std::string_view why) {
    std::uint64_t found = 0;
    metrics_.shard(0).tls_failures.for_each([&](std::string_view word, std::uint64_t count) {
      if (word == why) found = count;
    });
    return found;
  }
  void advance(Duration time) {
    clock_.advance(time);
    reactor_.run_ready();
  }

  ManualClock clock_;
  Reactor reactor_{clock_};
  ProxyMetrics metrics_{1};
  int arrived_ = 0;
  TlsArrivals arrivals_{reactor_, *server_, metrics_.shard(0),
                        TlsArrivals::Options{.limit = std::chrono::seconds(10), .most = 3},
                        [this](const IntrusivePtr<TlsStream>& stream, const auto&, const auto&) {
                          ++arrived_;
                          stream->close();
                        }};
};

TEST_F(TlsArrivalsTest, AHandshakeHasItsTimeAndNoMore) {
  static_cast<void>(reactor_.poller());
  const int silent = add();
  const int slow = add();
  ASSERT_EQ(::send(slow, "\x16\x03\x01", 3, 0), 3);
  advance(std::chrono::seconds(9));
  EXPECT_FALSE(closed(silent));
  EXPECT_EQ(metrics_.shard(0).client_connections.value(), 2);
  advance(std::chrono::seconds(2));
  EXPECT_TRUE(closed(silent));
  EXPECT_TRUE(closed(slow));
  EXPECT_EQ(failures("timeout"), 2U);
  EXPECT_EQ(metrics_.shard(0).client_connections.value(), 0);
  ::close(silent);
  ::close(slow);
}

TEST_F(TlsArrivalsTest, OfTooManyTheOldestGoesOnceItHasHadItsShare) {
  static_cast<void>(reactor_.poller());
  std::vector<int> sockets;
  for (int i = 0; i < 4; ++i) sockets.push_back(add());
  // All came at once: the last one finds no room.
  EXPECT_TRUE(closed(sockets[3]));
  EXPECT_FALSE(closed(sockets[0]));
  advance(std::chrono::seconds(2));
  sockets.push_back(add());
  EXPECT_TRUE(closed(sockets[0]));
  EXPECT_FALSE(closed(sockets[4]));
  EXPECT_EQ(failures("too_many"), 2U);
  arrivals_.close();
  EXPECT_TRUE(closed(sockets[4]));
  for (const int socket : sockets) ::close(socket);
}

TEST_F(TlsArrivalsTest, AHandshakeThatEndsWellArrivesOnce) {
  TlsPeer peer(add(), context_.get(), false);
  for (int i = 0; i < 1000 && arrived_ == 0; ++i) {
    peer.turn();
    reactor_.poller().wait(0);
  }
  EXPECT_EQ(arrived_, 1);
  EXPECT_EQ(metrics_.shard(0).tls_full.value(), 1U);
}

}  // namespace
}  // namespace pointsman::test
