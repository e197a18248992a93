#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pointsman {

// Reads MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md) item by item, where it
// lies: no allocation, no recursion, no copy. Whoever reads asks for one item after the other and
// knows from its kind what comes next.
//
// Bytes that are no MessagePack, or end too early, give kBroken, and so does everything after them.
// A container's count is what its head claims: never trust it with memory before the items are
// there. Any item takes at least one byte, so a count above left() is a lie.
class MsgpackReader {
 public:
  enum class Kind : std::uint8_t {
    kBroken,
    kNil,
    kBoolean,    // integer: 0 or 1
    kUnsigned,   // integer
    kNegative,   // integer, as the bits of an int64
    kFloat,      // number
    kText,       // bytes
    kBinary,     // bytes
    kArray,      // count items follow
    kMap,        // count pairs of items follow
    kExtension,  // bytes
  };
  struct Item {
    Kind kind = Kind::kBroken;
    std::uint64_t integer = 0;
    double number = 0;
    std::uint32_t count = 0;
    std::string_view bytes{};  // into what is read
  };

  explicit MsgpackReader(std::string_view bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}

  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  // The next item. Of an array or a map only the head.
  Item next() {
    if (at_ == end_ || broken_) return fail();
    const auto head = static_cast<std::uint8_t>(*at_++);
    if (head <= 0x7F) return whole(Kind::kUnsigned, head);
    if (head >= 0xE0) return signed_whole(static_cast<std::int8_t>(head));
    if (head <= 0x8F) return container(Kind::kMap, head & 0x0F);
    if (head <= 0x9F) return container(Kind::kArray, head & 0x0F);
    if (head <= 0xBF) return bytes(Kind::kText, head & 0x1F);
    switch (head) {
      case 0xC0:
        return {.kind = Kind::kNil};
      case 0xC2:
        return whole(Kind::kBoolean, 0);
      case 0xC3:
        return whole(Kind::kBoolean, 1);
      case 0xC4:
        return bytes(Kind::kBinary, big_endian(1));
      case 0xC5:
        return bytes(Kind::kBinary, big_endian(2));
      case 0xC6:
        return bytes(Kind::kBinary, big_endian(4));
      case 0xC7:
        return extension(big_endian(1));
      case 0xC8:
        return extension(big_endian(2));
      case 0xC9:
        return extension(big_endian(4));
      case 0xCA:
        return real(std::bit_cast<float>(static_cast<std::uint32_t>(big_endian(4))));
      case 0xCB:
        return real(std::bit_cast<double>(big_endian(8)));
      case 0xCC:
        return whole(Kind::kUnsigned, big_endian(1));
      case 0xCD:
        return whole(Kind::kUnsigned, big_endian(2));
      case 0xCE:
        return whole(Kind::kUnsigned, big_endian(4));
      case 0xCF:
        return whole(Kind::kUnsigned, big_endian(8));
      case 0xD0:
        return signed_whole(static_cast<std::int8_t>(big_endian(1)));
      case 0xD1:
        return signed_whole(static_cast<std::int16_t>(big_endian(2)));
      case 0xD2:
        return signed_whole(static_cast<std::int32_t>(big_endian(4)));
      case 0xD3:
        return signed_whole(static_cast<std::int64_t>(big_endian(8)));
      case 0xD4:
      case 0xD5:
      case 0xD6:
      case 0xD7:
      case 0xD8:
        return extension(std::uint64_t{1} << (head - 0xD4));
      case 0xD9:
        return bytes(Kind::kText, big_endian(1));
      case 0xDA:
        return bytes(Kind::kText, big_endian(2));
      case 0xDB:
        return bytes(Kind::kText, big_endian(4));
      case 0xDC:
        return container(Kind::kArray, big_endian(2));
      case 0xDD:
        return container(Kind::kArray, big_endian(4));
      case 0xDE:
        return container(Kind::kMap, big_endian(2));
      case 0xDF:
        return container(Kind::kMap, big_endian(4));
      default:
        return fail();  // 0xC1: never used
    }
  }

  // Passes over what is inside `item`, which next() has just given.
  void skip_inside(const Item& item) {
    std::uint64_t open = inside(item);
    while (open > 0 && !broken_) open += inside(next()) - 1;
  }
  // Passes over the next item, with all that is inside.
  void skip() { skip_inside(next()); }

  // A small unsigned integer where the next item is one, as token ids are: the short way of
  // next() for long arrays of them. False, and nothing read, where it is another item.
  bool next_small(std::uint32_t& value) {
    if (at_ == end_ || broken_) return false;
    const auto head = static_cast<std::uint8_t>(*at_);
    if (head <= 0x7F) {
      value = head;
      ++at_;
      return true;
    }
    if (head == 0xCD && left() >= 3) {
      value = (std::uint32_t{byte(1)} << 8) | byte(2);
      at_ += 3;
      return true;
    }
    if (head == 0xCC && left() >= 2) {
      value = byte(1);
      at_ += 2;
      return true;
    }
    if (head == 0xCE && left() >= 5) {
      value = (std::uint32_t{byte(1)} << 24) | (std::uint32_t{byte(2)} << 16) |
              (std::uint32_t{byte(3)} << 8) | byte(4);
      at_ += 5;
      return true;
    }
    return false;
  }

 private:
  static std::uint64_t inside(const Item& item) {
    if (item.kind == Kind::kArray) return item.count;
    return item.kind == Kind::kMap ? 2 * std::uint64_t{item.count} : 0;
  }
  [[nodiscard]] std::uint8_t byte(int place) const { return static_cast<std::uint8_t>(at_[place]); }

  Item fail() {
    broken_ = true;
    return {};
  }
  // 0 where there are too few bytes; then the reader is broken.
  std::uint64_t big_endian(std::size_t size) {
    if (left() < size) {
      broken_ = true;
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = (value << 8) | byte(static_cast<int>(i));
    at_ += size;
    return value;
  }
  Item whole(Kind kind, std::uint64_t value) {
    if (broken_) return {};
    return {.kind = kind, .integer = value};
  }
  Item signed_whole(std::int64_t value) {
    return whole(value < 0 ? Kind::kNegative : Kind::kUnsigned, static_cast<std::uint64_t>(value));
  }
  Item real(double value) {
    if (broken_) return {};
    return {.kind = Kind::kFloat, .number = value};
  }
  Item container(Kind kind, std::uint64_t count) {
    if (broken_) return {};
    return {.kind = kind, .count = static_cast<std::uint32_t>(count)};
  }
  Item bytes(Kind kind, std::uint64_t size) {
    if (broken_ || left() < size) return fail();
    const std::string_view found(at_, size);
    at_ += size;
    return {.kind = kind, .bytes = found};
  }
  Item extension(std::uint64_t size) {
    big_endian(1);  // its type
    return bytes(Kind::kExtension, size);
  }

  const char* at_;
  const char* end_;
  bool broken_ = false;
};

}  // namespace pointsman
