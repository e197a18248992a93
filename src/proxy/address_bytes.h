#pragma once

#include <algorithm>

#include "access/address_range.h"
#include "net/asio.h"

namespace pointsman {

// An address as the rules of access take it.
inline AddressBytes address_bytes(const asio::ip::address& address) {
  if (address.is_v6()) return address.to_v6().to_bytes();
  AddressBytes bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const asio::ip::address_v4::bytes_type v4 = address.to_v4().to_bytes();
  std::copy(v4.begin(), v4.end(), bytes.begin() + 12);
  return bytes;
}

}  // namespace pointsman
