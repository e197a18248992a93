#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pointsman::test {

// Writes MessagePack for tests, as engines would: no more than they use.
class Pack {
 public:
  Pack& nil() { return byte(0xC0); }
  Pack& whole(std::uint64_t value) {
    if (value <= 0x7F) return byte(static_cast<std::uint8_t>(value));
    if (value <= 0xFFFF) return byte(0xCD).big_endian(value, 2);
    return byte(0xCF).big_endian(value, 8);
  }
  Pack& negative(std::int64_t value) {
    return byte(0xD3).big_endian(static_cast<std::uint64_t>(value), 8);
  }
  Pack& real(double value) {
    std::uint64_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return byte(0xCB).big_endian(bits, 8);
  }
  Pack& text(std::string_view value) {
    byte(0xD9).big_endian(value.size(), 1).bytes_ += value;
    return *this;
  }
  Pack& binary(std::string_view value) {
    byte(0xC4).big_endian(value.size(), 1).bytes_ += value;
    return *this;
  }
  Pack& array(std::size_t count) { return byte(0xDD).big_endian(count, 4); }
  Pack& map(std::size_t count) { return byte(0xDF).big_endian(count, 4); }
  Pack& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  Pack& byte(std::uint8_t value) {
    bytes_ += static_cast<char>(value);
    return *this;
  }
  Pack& big_endian(std::uint64_t value, int size) {
    for (int i = size - 1; i >= 0; --i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
    return *this;
  }

  std::string bytes_;
};

// A BlockStored to be written.
struct StoredEvent {
  std::vector<std::uint64_t> blocks{};
  std::optional<std::uint64_t> parent{};
  std::vector<std::uint32_t> tokens{};
  std::uint32_t block_tokens = 16;
  std::string medium = "GPU";
  std::string lora{};    // empty: of the base model
  std::string extras{};  // MessagePack of extra_keys; empty: none
  std::optional<std::uint64_t> group{};
  std::string kind{};
};

// As vLLM has written it since 0.23: a map.
inline std::string packed(const StoredEvent& event) {
  Pack pack;
  const std::size_t fields = 6 + (event.lora.empty() ? 0 : 1) + (event.extras.empty() ? 0 : 1) +
                             (event.group ? 1 : 0) + (event.kind.empty() ? 0 : 1);
  pack.map(fields).text("type").text("BlockStored").text("block_hashes");
  pack.array(event.blocks.size());
  for (const std::uint64_t block : event.blocks) pack.whole(block);
  pack.text("parent_block_hash");
  event.parent ? pack.whole(*event.parent) : pack.nil();
  pack.text("token_ids").array(event.tokens.size());
  for (const std::uint32_t token : event.tokens) pack.whole(token);
  pack.text("block_size").whole(event.block_tokens);
  pack.text("medium").text(event.medium);
  if (!event.lora.empty()) pack.text("lora_name").text(event.lora);
  if (!event.extras.empty()) pack.text("extra_keys").raw(event.extras);
  if (event.group) pack.text("group_idx").whole(*event.group);
  if (!event.kind.empty()) pack.text("kv_cache_spec_kind").text(event.kind);
  return pack.bytes();
}

inline std::string packed_removed(const std::vector<std::uint64_t>& blocks,
                                  std::string_view medium = "GPU",
                                  std::optional<std::uint64_t> group = {}) {
  Pack pack;
  pack.map(group ? 4 : 3).text("type").text("BlockRemoved").text("block_hashes");
  pack.array(blocks.size());
  for (const std::uint64_t block : blocks) pack.whole(block);
  pack.text("medium").text(medium);
  if (group) pack.text("group_idx").whole(*group);
  return pack.bytes();
}

inline std::string packed_cleared() {
  return Pack().map(1).text("type").text("AllBlocksCleared").bytes();
}

// The payload of a message with these events.
inline std::string packed_batch(std::initializer_list<std::string> events, double time = 1.5,
                                std::uint64_t rank = 0) {
  Pack pack;
  pack.array(3).real(time).array(events.size());
  for (const std::string& event : events) pack.raw(event);
  return pack.whole(rank).bytes();
}

}  // namespace pointsman::test
