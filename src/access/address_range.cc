#include "access/address_range.h"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>

namespace pointsman {
namespace {

constexpr unsigned kBits = 128;
constexpr unsigned kMappedBits = 96;  // before an IPv4 address

struct Parsed {
  AddressBytes bytes{};
  bool v4 = false;
};

std::optional<Parsed> parse_address(const std::string& text) {
  Parsed parsed;
  if (::inet_pton(AF_INET6, text.c_str(), parsed.bytes.data()) == 1) return parsed;
  parsed.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  parsed.v4 = true;
  if (::inet_pton(AF_INET, text.c_str(), parsed.bytes.data() + kMappedBits / 8) == 1) return parsed;
  return std::nullopt;
}

// The bits of byte `at` that belong to a prefix of `bits`.
std::uint8_t mask(unsigned bits, unsigned at) {
  const unsigned before = at * 8;
  if (bits <= before) return 0;
  const unsigned here = std::min(bits - before, 8U);
  return static_cast<std::uint8_t>(0xff00U >> here);
}

}  // namespace

std::optional<AddressRange> AddressRange::parse(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::optional<Parsed> address = parse_address(text.substr(0, slash));
  if (!address) return std::nullopt;
  unsigned bits = kBits;
  if (slash != std::string::npos) {
    const char* const begin = text.data() + slash + 1;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(begin, end, bits);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
    if (bits > (address->v4 ? kBits - kMappedBits : kBits)) return std::nullopt;
    if (address->v4) bits += kMappedBits;
  }
  for (unsigned at = 0; at < kBits / 8; ++at) {
    if ((address->bytes[at] & ~mask(bits, at)) != 0) return std::nullopt;
  }
  return AddressRange(address->bytes, bits);
}

bool AddressRange::contains(const AddressBytes& address) const {
  for (unsigned at = 0; at * 8 < bits_; ++at) {
    if (((address[at] ^ first_[at]) & mask(bits_, at)) != 0) return false;
  }
  return true;
}

AddressRanges::AddressRanges(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (const std::optional<AddressRange> range = AddressRange::parse(text)) {
      ranges_.push_back(*range);
    }
  }
}

bool AddressRanges::contains(const AddressBytes& address) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&address](const AddressRange& range) { return range.contains(address); });
}

}  // namespace pointsman
