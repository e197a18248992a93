#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pointsman {

// An IPv6 address in network order; an IPv4 address is ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
using AddressBytes = std::array<std::uint8_t, 16>;

// A network, as "10.0.0.0/8", "fd00::/8", or a single address without the slash.
class AddressRange {
 public:
  // Nothing where the text is no network. Bits beyond the prefix must be 0: "10.1.0.0/8" is more
  // likely a slip than a wish.
  static std::optional<AddressRange> parse(const std::string& text);

  [[nodiscard]] bool contains(const AddressBytes& address) const;

 private:
  AddressRange(const AddressBytes& first, unsigned bits) : first_(first), bits_(bits) {}

  AddressBytes first_;
  unsigned bits_;  // of the prefix, counted from the front of the 128
};

// A list of networks, of few entries: it is looked through from its start.
class AddressRanges {
 public:
  AddressRanges() = default;
  // Entries that are no networks are left out; the configuration has been checked for them.
  explicit AddressRanges(const std::vector<std::string>& texts);

  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] bool contains(const AddressBytes& address) const;

 private:
  std::vector<AddressRange> ranges_;
};

}  // namespace pointsman
