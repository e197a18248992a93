#include "access/connection_counts.h"

#include <algorithm>

namespace pointsman {
namespace {

// Without the part of an IPv6 address that its owner chooses.
AddressBytes client_of(AddressBytes address) {
  constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (!std::equal(kMapped.begin(), kMapped.end(), address.begin())) {
    std::fill(address.begin() + 8, address.end(), std::uint8_t{0});
  }
  return address;
}

}  // namespace

ConnectionCounts::Verdict ConnectionCounts::enter(const AddressBytes& address,
                                                  ConnectionPlace& place) {
  std::uint32_t open = all_.load(std::memory_order_relaxed);
  do {
    if (limits_.all != 0 && open >= limits_.all) return Verdict::kTooMany;
  } while (!all_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed));
  if (counted(address) && !enter_client(address)) {
    all_.fetch_sub(1, std::memory_order_relaxed);
    return Verdict::kTooManyOfClient;
  }
  place = ConnectionPlace(*this, address);
  return Verdict::kLetIn;
}

bool ConnectionCounts::enter_client(const AddressBytes& address) {
  const std::lock_guard lock(mutex_);
  std::uint32_t& count = clients_[client_of(address)];
  if (count >= limits_.per_client) return false;
  ++count;
  return true;
}

void ConnectionCounts::leave(const AddressBytes& address) {
  all_.fetch_sub(1, std::memory_order_relaxed);
  if (!counted(address)) return;
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client_of(address));
  if (found != clients_.end() && --found->second == 0) clients_.erase(found);
}

}  // namespace pointsman
