#include "net/resolver.h"

#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pointsman {
namespace {

using asio::ip::make_address;
using ::testing::HasSubstr;

Result<Resolver::Endpoints> ask(Resolver& resolver, Reactor& reactor, std::string_view host) {
  std::promise<Result<Resolver::Endpoints>> promise;
  resolver.resolve(reactor, host, 80,
                   [&](Result<Resolver::Endpoints> found) { promise.set_value(std::move(found)); });
  return promise.get_future().get();
}

TEST(Resolver, LiteralsNeedNoLookup) {
  std::atomic<int> lookups{0};
  Resolver resolver(std::chrono::seconds(30), Reactor::steady_clock(), [&](const std::string&) {
    ++lookups;
    return Result<Resolver::Addresses>(Error{});
  });
  ASSERT_TRUE(resolver.cached("127.0.0.1", 8000).has_value());
  EXPECT_EQ(resolver.cached("127.0.0.1", 8000)->front(),
            asio::ip::tcp::endpoint(make_address("127.0.0.1"), 8000));
  EXPECT_EQ(resolver.cached("2001:db8::1", 1)->front().address(), make_address("2001:db8::1"));
  ReactorThread thread;
  EXPECT_EQ(ask(resolver, thread.reactor(), "::1")->front().address(), make_address("::1"));
  EXPECT_EQ(lookups, 0);
}

TEST(Resolver, KeepsAnswersAndLooksAgainInTheBackground) {
  ManualClock clock;
  std::atomic<int> lookups{0};
  std::atomic<bool> works{true};
  ReactorThread thread;
  Resolver resolver(
      std::chrono::seconds(30), clock, [&](const std::string& host) -> Result<Resolver::Addresses> {
        const int n = ++lookups;
        if (!works) return Error{ErrorKind::kFault, host + " is unknown"};
        return Resolver::Addresses{make_address("192.0.2." + std::to_string(n)).to_v4()};
      });
  EXPECT_FALSE(resolver.cached("a.example", 80).has_value());
  EXPECT_EQ(ask(resolver, thread.reactor(), "a.example")->front().address(),
            make_address("192.0.2.1"));
  EXPECT_EQ(ask(resolver, thread.reactor(), "a.example")->front().address(),
            make_address("192.0.2.1"));
  EXPECT_EQ(lookups, 1);

  // Too old: used once more while the new look-up runs. The question behind it, for another name,
  // waits for the one thread and so for that look-up.
  clock.advance(std::chrono::seconds(31));
  EXPECT_EQ(resolver.cached("a.example", 80)->front().address(), make_address("192.0.2.1"));
  ASSERT_TRUE(ask(resolver, thread.reactor(), "b.example").ok());
  EXPECT_EQ(resolver.cached("a.example", 80)->front().address(), make_address("192.0.2.2"));

  // The name server fails: the old answer stays for a while, not for ever.
  works = false;
  clock.advance(std::chrono::seconds(31));
  EXPECT_TRUE(resolver.cached("a.example", 80).has_value());
  EXPECT_FALSE(ask(resolver, thread.reactor(), "c.example").ok());
  EXPECT_EQ(resolver.cached("a.example", 80)->front().address(), make_address("192.0.2.2"));
  clock.advance(std::chrono::minutes(11));
  EXPECT_FALSE(resolver.cached("a.example", 80).has_value());
  const Result<Resolver::Endpoints> gone = ask(resolver, thread.reactor(), "a.example");
  ASSERT_FALSE(gone.ok());
  EXPECT_THAT(gone.error().message, HasSubstr("a.example"));

  // A failure is remembered for a second.
  const int before = lookups;
  EXPECT_FALSE(ask(resolver, thread.reactor(), "a.example").ok());
  EXPECT_EQ(lookups, before);
  thread.join();
}

TEST(Resolver, TheSystemKnowsLocalhost) {
  const Result<Resolver::Addresses> found = Resolver::look_up("localhost");
  ASSERT_TRUE(found.ok());
  for (const asio::ip::address& address : *found) EXPECT_TRUE(address.is_loopback());
}

TEST(Resolver, MayGoWhileALookupHangs) {
  std::promise<void> entered;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  ReactorThread thread;
  {
    Resolver resolver(std::chrono::seconds(30), Reactor::steady_clock(),
                      [&entered, released](const std::string&) {
                        entered.set_value();
                        released.wait();
                        return Result<Resolver::Addresses>(Error{});
                      });
    resolver.resolve(thread.reactor(), "slow.example", 80,
                     [](const Result<Resolver::Endpoints>&) { ADD_FAILURE(); });
    entered.get_future().wait();
  }
  release.set_value();
  thread.join();
}

}  // namespace
}  // namespace pointsman
