#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "access/address_range.h"

namespace pointsman {

class ConnectionCounts;

// One connection's place within the limits; given back when it is closed.
class ConnectionPlace {
 public:
  ConnectionPlace() = default;
  ConnectionPlace(ConnectionPlace&& other) noexcept
      : counts_(std::exchange(other.counts_, nullptr)), address_(other.address_) {}
  ConnectionPlace& operator=(ConnectionPlace&& other) noexcept {
    give_back();
    counts_ = std::exchange(other.counts_, nullptr);
    address_ = other.address_;
    return *this;
  }
  ConnectionPlace(const ConnectionPlace&) = delete;
  ConnectionPlace& operator=(const ConnectionPlace&) = delete;
  ~ConnectionPlace() { give_back(); }

  void give_back();

 private:
  friend class ConnectionCounts;
  ConnectionPlace(ConnectionCounts& counts, const AddressBytes& address)
      : counts_(&counts), address_(address) {}

  ConnectionCounts* counts_ = nullptr;  // null: no place is held
  AddressBytes address_{};
};

// How many connections clients have open, and whether one more is let in. Any thread. The cost
// without a limit on one client is that of one atomic count for each connection.
class ConnectionCounts {
 public:
  struct Limits {
    std::uint32_t all = 0;         // 0: no limit
    std::uint32_t per_client = 0;  // 0: no limit; the addresses of `trusted` have none
  };
  // `trusted` outlives this, and this all places.
  ConnectionCounts(Limits limits, const AddressRanges& trusted)
      : limits_(limits), trusted_(trusted) {}

  enum class Verdict : std::uint8_t { kLetIn, kTooMany, kTooManyOfClient };
  // What is let in gets `place`.
  [[nodiscard]] Verdict enter(const AddressBytes& address, ConnectionPlace& place);

  [[nodiscard]] std::uint32_t open() const { return all_.load(std::memory_order_relaxed); }

 private:
  friend class ConnectionPlace;
  bool enter_client(const AddressBytes& address);
  void leave(const AddressBytes& address);
  [[nodiscard]] bool counted(const AddressBytes& address) const {
    return limits_.per_client != 0 && !trusted_.contains(address);
  }

  const Limits limits_;
  const AddressRanges& trusted_;
  std::atomic<std::uint32_t> all_{0};
  std::mutex mutex_;
  // That have any. A client is an IPv4 address or an IPv6 /64: whoever has one address of those has
  // them all.
  std::map<AddressBytes, std::uint32_t> clients_;
};

inline void ConnectionPlace::give_back() {
  if (counts_ != nullptr) std::exchange(counts_, nullptr)->leave(address_);
}

}  // namespace pointsman
