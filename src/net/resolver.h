#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/asio.h"
#include "net/reactor.h"

namespace pointsman {

// Host names to addresses, without blocking a reactor: getaddrinfo runs on a thread of its own, and
// its answers are kept.
//
// A name is looked up again when its answer is older than `keep`; until the new answer is there the
// old one is used, and also for up to ten minutes while the name server fails. IP literals never
// wait. Thread-safe. Reactors passed to resolve() must outlive the resolver.
class Resolver {
 public:
  using Addresses = std::vector<asio::ip::address>;
  using Endpoints = std::vector<asio::ip::tcp::endpoint>;
  using Callback = std::function<void(Result<Endpoints>)>;
  using Lookup = std::function<Result<Addresses>(const std::string& host)>;

  explicit Resolver(Duration keep = std::chrono::seconds(30),
                    const Clock& clock = Reactor::steady_clock(), Lookup lookup = &look_up);
  ~Resolver();  // callbacks not yet called never will be; does not wait for a slow name server
  // Forgets who waits, and answers nobody any more: reactors may go before the resolver then.
  void close();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // The answer where it is known without waiting: literals and kept names. Never empty.
  [[nodiscard]] std::optional<Endpoints> cached(std::string_view host, std::uint16_t port);

  // Calls back on the reactor's thread, never from inside this call. Endpoints are in the order of
  // preference of the system (RFC 6724) and never empty.
  void resolve(Reactor& reactor, std::string_view host, std::uint16_t port, Callback callback);

  // getaddrinfo. Blocks.
  static Result<Addresses> look_up(const std::string& host);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace pointsman
