#include "net/resolver.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include <netdb.h>

namespace pointsman {
namespace {

constexpr Duration kKeepOnFailure = std::chrono::minutes(10);
// A name that failed is not asked for again at once.
constexpr Duration kRetryAfterFailure = std::chrono::seconds(1);

Resolver::Endpoints with_port(const Resolver::Addresses& addresses, std::uint16_t port) {
  Resolver::Endpoints endpoints;
  endpoints.reserve(addresses.size());
  for (const asio::ip::address& address : addresses) endpoints.emplace_back(address, port);
  return endpoints;
}

}  // namespace

// Shared with the thread, which may be inside getaddrinfo for a long time after the resolver went.
struct Resolver::Shared {
  struct Waiting {
    Reactor* reactor;
    std::uint16_t port;
    Callback callback;
  };
  struct Name {
    Addresses addresses;    // of the last good answer
    TimePoint answered_at;  // of that answer
    TimePoint asked_at;     // when the last look-up ended, well or not
    Error error;            // of the last look-up, where it failed
    bool failed = false;
    bool looking = false;
    std::vector<Waiting> waiting;
  };

  Shared(Duration keep_for, const Clock& its_clock, Lookup its_lookup)
      : keep(keep_for), clock(its_clock), lookup(std::move(its_lookup)) {}

  const Duration keep;
  const Clock& clock;
  const Lookup lookup;
  std::mutex mutex;
  std::condition_variable wake;
  std::unordered_map<std::string, Name> names;
  std::deque<std::string> queue;
  bool thread_running = false;
  bool closed = false;

  // Under the mutex.
  void ask(const std::shared_ptr<Shared>& self, const std::string& host, Name& name) {
    if (name.looking) return;
    name.looking = true;
    queue.push_back(host);
    if (!thread_running) {
      thread_running = true;
      std::thread([self] { self->run(); }).detach();
    }
    wake.notify_one();
  }

  // The kept answer where it may still be used; asks anew where it is old. Under the mutex.
  const Addresses* usable(const std::shared_ptr<Shared>& self, const std::string& host,
                          Name& name) {
    if (name.addresses.empty()) return nullptr;
    const TimePoint now = clock.now();
    if (now - name.answered_at > kKeepOnFailure) return nullptr;
    const Duration rest = name.failed ? kRetryAfterFailure : keep;
    if (now - name.asked_at > rest) ask(self, host, name);
    return &name.addresses;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return closed || !queue.empty(); });
      if (closed) return;
      const std::string host = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      Result<Addresses> found = lookup(host);
      lock.lock();
      if (closed) return;
      Name& name = names[host];
      name.looking = false;
      name.asked_at = clock.now();
      name.failed = !found.ok() || found->empty();
      if (!name.failed) {
        name.addresses = *std::move(found);
        name.answered_at = name.asked_at;
      } else {
        name.error = found.ok() ? Error{ErrorKind::kFault, host + ": no address"} : found.error();
      }
      const bool stale = name.asked_at - name.answered_at > kKeepOnFailure;
      for (Waiting& waiting : std::exchange(name.waiting, {})) {
        Result<Endpoints> answer = name.addresses.empty() || stale
                                       ? Result<Endpoints>(name.error)
                                       : Result<Endpoints>(with_port(name.addresses, waiting.port));
        waiting.reactor->post(
            [callback = std::move(waiting.callback), answer = std::move(answer)]() mutable {
              callback(std::move(answer));
            });
      }
    }
  }
};

Resolver::Resolver(Duration keep, const Clock& clock, Lookup lookup)
    : shared_(std::make_shared<Shared>(keep, clock, std::move(lookup))) {}

Resolver::~Resolver() {
  close();
}

void Resolver::close() {
  const std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  for (auto& [host, name] : shared_->names) name.waiting.clear();
  shared_->wake.notify_one();
}

std::optional<Resolver::Endpoints> Resolver::cached(std::string_view host, std::uint16_t port) {
  const std::string name(host);
  std::error_code not_literal;
  const asio::ip::address literal = asio::ip::make_address(name, not_literal);
  if (!not_literal) return Endpoints{{literal, port}};
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->names.find(name);
  if (found == shared_->names.end()) return std::nullopt;
  const Addresses* addresses = shared_->usable(shared_, name, found->second);
  if (addresses == nullptr) return std::nullopt;
  return with_port(*addresses, port);
}

void Resolver::resolve(Reactor& reactor, std::string_view host, std::uint16_t port,
                       Callback callback) {
  if (std::optional<Endpoints> known = cached(host, port)) {
    reactor.post([callback = std::move(callback), known = *std::move(known)]() mutable {
      callback(std::move(known));
    });
    return;
  }
  const std::string text(host);
  const std::lock_guard lock(shared_->mutex);
  Shared::Name& name = shared_->names[text];
  const bool failed_just_now =
      name.failed && !name.looking && shared_->clock.now() - name.asked_at < kRetryAfterFailure;
  if (failed_just_now) {
    reactor.post([callback = std::move(callback), error = name.error]() mutable {
      callback(std::move(error));
    });
    return;
  }
  name.waiting.push_back({&reactor, port, std::move(callback)});
  shared_->ask(shared_, text, name);
}

Result<Resolver::Addresses> Resolver::look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failure = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (failure != 0) {
    return Error{ErrorKind::kFault, "cannot resolve " + host + ": " + ::gai_strerror(failure)};
  }
  Addresses addresses;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    if (item->ai_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(item->ai_addr);
      addresses.emplace_back(asio::ip::address_v4(ntohl(in->sin_addr.s_addr)));
    } else if (item->ai_family == AF_INET6) {
      const auto* in6 = reinterpret_cast<const sockaddr_in6*>(item->ai_addr);
      asio::ip::address_v6::bytes_type bytes;
      std::copy(std::begin(in6->sin6_addr.s6_addr), std::end(in6->sin6_addr.s6_addr),
                bytes.begin());
      addresses.emplace_back(asio::ip::address_v6(bytes, in6->sin6_scope_id));
    }
  }
  ::freeaddrinfo(list);
  return addresses;
}

}  // namespace pointsman
