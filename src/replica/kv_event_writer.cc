#include "replica/kv_event_writer.h"

#include <bit>
#include <string_view>

namespace pointsman {
namespace {

// https://github.com/msgpack/msgpack/blob/master/spec.md, each value in its shortest form.
class MessagePack {
 public:
  void nil() { byte(0xC0); }
  void whole(std::uint64_t value) {
    if (value <= 0x7F) {
      byte(value);
    } else if (value <= 0xFF) {
      big_endian(0xCC, value, 1);
    } else if (value <= 0xFFFF) {
      big_endian(0xCD, value, 2);
    } else if (value <= 0xFFFF'FFFF) {
      big_endian(0xCE, value, 4);
    } else {
      big_endian(0xCF, value, 8);
    }
  }
  void real(double value) { big_endian(0xCB, std::bit_cast<std::uint64_t>(value), 8); }
  void text(std::string_view value) {
    if (value.size() <= 31) {
      byte(0xA0 | value.size());
    } else if (value.size() <= 0xFF) {
      big_endian(0xD9, value.size(), 1);
    } else if (value.size() <= 0xFFFF) {
      big_endian(0xDA, value.size(), 2);
    } else {
      big_endian(0xDB, value.size(), 4);
    }
    bytes_.append(value);
  }
  // At most 255 bytes.
  void binary(std::string_view value) {
    big_endian(0xC4, value.size(), 1);
    bytes_.append(value);
  }
  void array(std::size_t count) {
    if (count <= 15) {
      byte(0x90 | count);
    } else if (count <= 0xFFFF) {
      big_endian(0xDC, count, 2);
    } else {
      big_endian(0xDD, count, 4);
    }
  }
  // At most 15 fields.
  void map(std::size_t count) { byte(0x80 | count); }

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  void byte(std::uint64_t value) { bytes_.push_back(static_cast<char>(value)); }
  void big_endian(std::uint64_t tag, std::uint64_t value, int bytes) {
    byte(tag);
    for (int i = bytes - 1; i >= 0; --i) byte(value >> (8 * i) & 0xFF);
  }

  std::string bytes_;
};

class EventWriter {
 public:
  EventWriter(KvLayout layout, KvHashes hashes) : layout_(layout), hashes_(hashes) {}

  void begin_batch(double time, std::size_t events) {
    out_.array(3);
    out_.real(time);
    out_.array(events);
  }
  std::string end_batch() {
    out_.whole(0);
    return out_.take();
  }

  void cleared() { begin("AllBlocksCleared", 0); }

  void removed(std::uint64_t block) {
    begin("BlockRemoved", 3);
    field("block_hashes");
    out_.array(1);
    hash(block);
    field("medium");
    out_.text("GPU");
    field("group_idx");
    out_.whole(0);
  }

  void stored(const KvChanges::Stored& event) {
    begin("BlockStored", layout_ == KvLayout::kMap ? 10 : 9);
    field("block_hashes");
    out_.array(event.blocks.size());
    for (const std::uint64_t block : event.blocks) hash(block);
    field("parent_block_hash");
    event.parent ? hash(*event.parent) : out_.nil();
    field("token_ids");
    out_.array(event.tokens.size());
    for (const std::uint32_t token : event.tokens) out_.whole(token);
    field("block_size");
    out_.whole(sim::kBlockTokens);
    field("lora_id");
    out_.nil();
    field("medium");
    out_.text("GPU");
    field("lora_name");
    out_.nil();
    // What else is in each block's hash: the salt, in a prompt's first one.
    field("extra_keys");
    out_.array(event.blocks.size());
    for (std::size_t i = 0; i < event.blocks.size(); ++i) {
      if (i == 0 && !event.parent && !event.salt.empty()) {
        out_.array(1);
        out_.text(event.salt);
      } else {
        out_.nil();
      }
    }
    field("group_idx");
    out_.whole(0);
    if (layout_ == KvLayout::kArray) return;
    field("kv_cache_spec_kind");
    out_.text("full_attention");
  }

 private:
  void begin(std::string_view type, std::size_t fields) {
    layout_ == KvLayout::kMap ? out_.map(1 + fields) : out_.array(1 + fields);
    field("type");
    out_.text(type);
  }
  void field(std::string_view name) {
    if (layout_ == KvLayout::kMap) out_.text(name);
  }
  void hash(std::uint64_t value) {
    if (hashes_ == KvHashes::kNumbers) return out_.whole(value);
    std::string digest;
    for (int copy = 0; copy < 4; ++copy) {
      for (int shift = 56; shift >= 0; shift -= 8) {
        digest.push_back(static_cast<char>(value >> shift & 0xFF));
      }
    }
    out_.binary(digest);
  }

  const KvLayout layout_;
  const KvHashes hashes_;
  MessagePack out_;
};

}  // namespace

std::string write_event_batch(const KvChanges& changes, double time, KvLayout layout,
                              KvHashes hashes) {
  EventWriter writer(layout, hashes);
  writer.begin_batch(time,
                     (changes.cleared ? 1 : 0) + changes.removed.size() + changes.stored.size());
  if (changes.cleared) writer.cleared();
  for (const std::uint64_t block : changes.removed) writer.removed(block);
  for (const KvChanges::Stored& event : changes.stored) writer.stored(event);
  return writer.end_batch();
}

}  // namespace pointsman
