// Where a replica is: names of several addresses, names that move, IPv6, and no port left to reach
// it.

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "support/no_descriptors.h"
#include "support/plain_message.h"
#include "support/proxy_test.h"
#include "support/stepped_proxy.h"

namespace pointsman::test {
namespace {

constexpr std::string_view kSmallAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

TEST(Addresses, AllOfANameAreTriedWhereTheFirstDoNotListen) {
  StepListener listener;
  SteppedProxy proxy({}, [](const std::string&) -> Result<Resolver::Addresses> {
    // Nobody listens at the first; the second is of a network that is not there.
    return Resolver::Addresses{asio::ip::make_address("127.0.0.9"),
                               asio::ip::make_address("2001:db8::1"),
                               asio::ip::make_address("127.0.0.1")};
  });
  proxy.add(listener.port(), "replica.test");
  StepSocket client = proxy.client();
  client.send(post("/v1/completions", "{}"));
  StepSocket replica;
  ASSERT_TRUE(proxy.asked(listener, replica));
  replica.send(kSmallAnswer);
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(proxy.metrics().requests_by_code[200].value(), 1);
}

TEST(Addresses, ANameWhoseAddressesAllRefuseIsABadGateway) {
  StepListener listener;
  SteppedProxy proxy({}, [](const std::string&) -> Result<Resolver::Addresses> {
    return Resolver::Addresses{asio::ip::make_address("127.0.0.9"),
                               asio::ip::make_address("127.0.0.10")};
  });
  proxy.add(listener.port(), "replica.test");
  StepSocket client = proxy.client();
  client.send(post("/v1/completions", "{}"));
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(client.in(), HasSubstr("connection_refused"));
}

TEST(Addresses, Ipv6OnBothSides) {
  StepListener listener("::1");
  if (listener.port() == 0) GTEST_SKIP() << "this machine has no IPv6";
  SteppedProxy proxy({}, &Resolver::look_up, "::1");
  proxy.add(listener.port(), "::1");
  StepSocket client = proxy.client();
  client.send(post("/v1/completions", "{}"));
  StepSocket replica;
  ASSERT_TRUE(proxy.asked(listener, replica));
  EXPECT_EQ(read_message(replica.in())->header("host"), "[::1]:" + std::to_string(listener.port()));
  replica.send(kSmallAnswer);
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 200"));
}

// In a network of its own, where the ports for connections to replicas run out.
int run_out_of_ports() {
  constexpr int kPorts = 8;
  constexpr int kNoNetwork = 2;
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNoNetwork;
  const int any = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(any, SIOCSIFFLAGS, &loopback) != 0) return kNoNetwork;
  ::close(any);
  StepListener listener;
  SteppedProxy proxy;
  proxy.add(listener.port());
  std::vector<StepSocket> clients;
  for (int i = 0; i < 2 * kPorts; ++i) clients.push_back(proxy.client());
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << 20'000 << ' ' << 20'000 + kPorts - 1 << std::flush;
  if (!range) return kNoNetwork;
  std::vector<StepSocket> replicas(kPorts);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    clients[i].send(post("/v1/completions", "{}"));
    if (i < kPorts) {
      if (!proxy.asked(listener, replicas[i])) return 3;
    } else if (!proxy.told(clients[i]) || !clients[i].in().starts_with("HTTP/1.1 503") ||
               clients[i].in().find("out_of_descriptors") == std::string::npos) {
      return 4;
    }
  }
  // What is under way is untouched, and the replica is not blamed.
  for (std::size_t i = 0; i < kPorts; ++i) {
    replicas[i].send(kSmallAnswer);
    if (!proxy.told(clients[i]) || !clients[i].in().starts_with("HTTP/1.1 200")) return 5;
  }
  clients.back().in().clear();
  clients.back().send(post("/v1/completions", "{}"));
  replicas.back().in().clear();
  if (!proxy.asked(listener, replicas.back())) return 6;
  return proxy.fleet().status(0)->usable ? 0 : 7;
}

TEST(Addresses, WithoutAPortLeftOthersAreToldAndWhatRunsGoesOn) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(run_out_of_ports());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no network of its own can be had here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the step that failed";
}

// The same of descriptors: connections that are open serve on, and what is lacking is this
// process's.
TEST(Addresses, WithoutADescriptorLeftOthersAreToldAndKeptConnectionsServe) {
  if (NoDescriptorsLeft::kBreaksTheSanitizer) GTEST_SKIP();
  StepListener listener;
  SteppedProxy proxy;
  proxy.add(listener.port());
  const std::string request = post("/v1/completions", "{}");
  StepSocket first = proxy.client();
  StepSocket second = proxy.client();
  StepSocket replica;
  first.send(request);
  ASSERT_TRUE(proxy.asked(listener, replica));
  replica.in().clear();
  replica.send(kSmallAnswer);
  ASSERT_TRUE(proxy.told(first));
  ASSERT_TRUE(proxy.until([&] { return proxy.connections() == 2; }));
  {
    const NoDescriptorsLeft none;
    // Over the connection that was kept.
    first.in().clear();
    first.send(request);
    ASSERT_TRUE(proxy.asked(listener, replica));
    second.send(request);
    ASSERT_TRUE(proxy.told(second));
    EXPECT_THAT(second.in(), StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(second.in(), HasSubstr("X-Pointsman-Error: out_of_descriptors"));
    replica.send(kSmallAnswer);
    ASSERT_TRUE(proxy.told(first));
    EXPECT_THAT(first.in(), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_TRUE(proxy.fleet().status(0)->usable);
  EXPECT_EQ(proxy.fleet().status(0)->health.faults, 0);
  EXPECT_EQ(proxy.in_flight(), 0);
}

// Case D50: a replica that moves is found within the time that a name is kept.
TEST(Addresses, ANameThatMovesIsFollowed) {
  StepListener listener;
  std::atomic<bool> moved{false};
  std::atomic<int> lookups{0};
  SteppedProxy proxy({}, [&](const std::string&) -> Result<Resolver::Addresses> {
    ++lookups;
    return Resolver::Addresses{asio::ip::make_address(moved ? "127.0.0.1" : "127.0.0.9")};
  });
  const ReplicaIndex index = proxy.add(listener.port(), "replica.test");
  StepSocket client = proxy.client();
  client.send(post("/v1/completions", "{}"));
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 502"));
  client.in().clear();
  moved = true;
  // The first request after half a minute has the name looked up again, the next one has the
  // answer.
  proxy.advance(std::chrono::seconds(31));
  for (int i = 0; i < 2; ++i) {
    proxy.fleet().tick();
    proxy.fleet().probe_result(index, {ProbeResult::Kind::kReady, ""});
    client.in().clear();
    client.send(post("/v1/completions", "{}"));
    if (i == 0) {
      EXPECT_TRUE(proxy.told(client));
      EXPECT_TRUE(proxy.until([&] { return lookups == 2; }));
    }
  }
  StepSocket replica;
  EXPECT_TRUE(proxy.asked(listener, replica));
  replica.send(kSmallAnswer);
  EXPECT_TRUE(proxy.told(client));
  EXPECT_THAT(client.in(), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace pointsman::test
