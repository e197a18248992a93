#include "kv_events/event_decoder.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kv_events/msgpack_reader.h"

namespace pointsman {
namespace {

using Kind = MsgpackReader::Kind;
using Item = MsgpackReader::Item;

enum class Field : std::uint8_t {
  kType,
  kBlocks,
  kParent,
  kTokens,
  kBlockTokens,
  kLoraId,
  kMedium,
  kLoraName,
  kExtras,
  kGroup,
  kSpecKind,
  kUnknown,
};

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr FieldName kFieldNames[] = {
    {"type", Field::kType},
    {"block_hashes", Field::kBlocks},
    {"parent_block_hash", Field::kParent},
    {"token_ids", Field::kTokens},
    {"block_size", Field::kBlockTokens},
    {"lora_id", Field::kLoraId},
    {"medium", Field::kMedium},
    {"lora_name", Field::kLoraName},
    {"extra_keys", Field::kExtras},
    {"group_idx", Field::kGroup},
    {"kv_cache_spec_kind", Field::kSpecKind},
};

// What the places after the type are, in the array layout.
constexpr std::array kStoredFields = {
    Field::kBlocks, Field::kParent,   Field::kTokens, Field::kBlockTokens, Field::kLoraId,
    Field::kMedium, Field::kLoraName, Field::kExtras, Field::kGroup,       Field::kSpecKind};
constexpr std::array kRemovedFields = {Field::kBlocks, Field::kMedium, Field::kGroup};

Field field_named(std::string_view name) {
  for (const FieldName& known : kFieldNames) {
    if (known.name == name) return known.field;
  }
  return Field::kUnknown;
}

std::optional<KvEvent::Type> type_named(std::string_view name) {
  if (name == "BlockStored") return KvEvent::Type::kStored;
  if (name == "BlockRemoved") return KvEvent::Type::kRemoved;
  if (name == "AllBlocksCleared") return KvEvent::Type::kCleared;
  return std::nullopt;
}

std::string_view text_of(const Item& item) {
  return item.kind == Kind::kText ? item.bytes : std::string_view();
}

// FNV-1a, for the hashes of an engine that publishes them as text.
EngineHash hash_of_text(std::string_view text) {
  EngineHash hash = 0xCBF2'9CE4'8422'2325;
  for (const char c : text) {
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100'0000'01B3;
  }
  return hash;
}

std::optional<EngineHash> hash_of(const Item& item) {
  switch (item.kind) {
    case Kind::kUnsigned:
    case Kind::kNegative:
      return item.integer;
    case Kind::kBinary: {
      if (item.bytes.empty()) return std::nullopt;
      EngineHash hash = 0;
      const std::size_t size = std::min<std::size_t>(8, item.bytes.size());
      for (const char c : item.bytes.substr(item.bytes.size() - size)) {
        hash = (hash << 8) | static_cast<std::uint8_t>(c);
      }
      return hash;
    }
    case Kind::kText:
      return hash_of_text(item.bytes);
    default:
      return std::nullopt;
  }
}

// A range of one of the batch's vectors. The vectors move while the batch is read, so that the
// spans are made at its end.
struct Range {
  std::size_t from = 0;
  std::size_t count = 0;

  template <typename T>
  [[nodiscard]] std::span<const T> of(const std::vector<T>& all) const {
    return std::span<const T>(all).subspan(from, count);
  }
};

std::optional<std::int64_t> integer_of(const Item& item) {
  if (item.kind == Kind::kNegative ||
      (item.kind == Kind::kUnsigned &&
       item.integer <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))) {
    return static_cast<std::int64_t>(item.integer);
  }
  return std::nullopt;
}

class Decoder {
 public:
  Decoder(std::string_view payload, EventBatch& batch) : in_(payload), batch_(batch) {}

  bool read() {
    batch_.time = 0;
    batch_.rank.reset();
    batch_.events.clear();
    batch_.unreadable = 0;
    batch_.hashes.clear();
    batch_.tokens.clear();
    batch_.extras.clear();
    const Item head = in_.next();
    bool has_events = false;
    if (head.kind == Kind::kArray) {
      for (std::uint32_t i = 0; i < head.count && !in_.broken(); ++i) {
        read_part(i, has_events);
      }
    } else if (head.kind == Kind::kMap) {
      for (std::uint32_t i = 0; i < head.count && !in_.broken(); ++i) {
        const std::string_view key = text_of(read_scalar());
        read_part(key == "ts"                   ? 0
                  : key == "events"             ? 1
                  : key == "data_parallel_rank" ? 2
                                                : 3,
                  has_events);
      }
    }
    if (in_.broken() || !has_events) return false;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      KvEvent& event = batch_.events[i];
      event.blocks = ranges_[i].blocks.of(batch_.hashes);
      event.tokens = ranges_[i].tokens.of(batch_.tokens);
      event.extras = ranges_[i].extras.of(batch_.extras);
    }
    return true;
  }

 private:
  struct Ranges {
    Range blocks;
    Range tokens;
    Range extras;
  };

  // An item of which only a scalar is of use; of a container nothing is left to read.
  Item read_scalar() {
    const Item item = in_.next();
    in_.skip_inside(item);
    return item;
  }

  void read_part(std::uint32_t place, bool& has_events) {
    if (place == 0) {
      const Item time = read_scalar();
      if (time.kind == Kind::kFloat) batch_.time = time.number;
      if (time.kind == Kind::kUnsigned) batch_.time = static_cast<double>(time.integer);
    } else if (place == 1) {
      const Item events = in_.next();
      if (events.kind != Kind::kArray) return in_.skip_inside(events);
      has_events = true;
      for (std::uint32_t i = 0; i < events.count && !in_.broken(); ++i) read_event();
    } else if (place == 2) {
      batch_.rank = integer_of(read_scalar());
    } else {
      in_.skip();
    }
  }

  void read_event() {
    event_ = KvEvent{};
    now_ = Ranges{.blocks = {batch_.hashes.size(), 0},
                  .tokens = {batch_.tokens.size(), 0},
                  .extras = {batch_.extras.size(), 0}};
    const Ranges before = now_;
    makes_sense_ = true;
    has_blocks_ = false;
    type_.reset();
    bool has_type = false;

    const Item head = in_.next();
    if (head.kind == Kind::kMap) {
      for (std::uint32_t i = 0; i < head.count && !in_.broken(); ++i) {
        const Field field = field_named(text_of(read_scalar()));
        if (field == Field::kType) {
          const Item type = read_scalar();
          has_type = type.kind == Kind::kText;
          type_ = type_named(text_of(type));
        } else {
          read_field(field);
        }
      }
    } else if (head.kind == Kind::kArray && head.count > 0) {
      const Item type = read_scalar();
      has_type = type.kind == Kind::kText;
      type_ = type_named(text_of(type));
      for (std::uint32_t i = 1; i < head.count && !in_.broken(); ++i) read_field(field_at(i - 1));
    } else {
      in_.skip_inside(head);
    }
    if (in_.broken()) return;

    if (type_ && fits()) {
      event_.type = *type_;
      batch_.events.push_back(event_);
      ranges_.push_back(now_);
      return;
    }
    if (type_ || !has_type) ++batch_.unreadable;
    batch_.hashes.resize(before.blocks.from);
    batch_.tokens.resize(before.tokens.from);
    batch_.extras.resize(before.extras.from);
  }

  [[nodiscard]] Field field_at(std::size_t place) const {
    if (type_ == KvEvent::Type::kStored && place < kStoredFields.size()) {
      return kStoredFields[place];
    }
    if (type_ == KvEvent::Type::kRemoved && place < kRemovedFields.size()) {
      return kRemovedFields[place];
    }
    return Field::kUnknown;
  }

  // Whether the event's parts are there and go together.
  [[nodiscard]] bool fits() const {
    if (type_ == KvEvent::Type::kCleared) return true;
    if (!makes_sense_ || !has_blocks_) return false;
    if (type_ == KvEvent::Type::kRemoved) return true;
    if (now_.extras.count != 0 && now_.extras.count != now_.blocks.count) return false;
    if (now_.tokens.count == 0) return true;
    return event_.block_tokens > 0 &&
           now_.tokens.count == now_.blocks.count * std::uint64_t{event_.block_tokens};
  }

  void read_field(Field field) {
    switch (field) {
      case Field::kBlocks:
        return read_blocks();
      case Field::kParent: {
        const Item parent = read_scalar();
        if (parent.kind == Kind::kNil) return;
        event_.parent = hash_of(parent);
        makes_sense_ &= event_.parent.has_value();
        return;
      }
      case Field::kTokens:
        return read_tokens();
      case Field::kBlockTokens: {
        const Item size = read_scalar();
        const bool fits = size.kind == Kind::kUnsigned && size.integer <= kLargestBlock;
        event_.block_tokens = fits ? static_cast<std::uint32_t>(size.integer) : 0;
        makes_sense_ &= fits;
        return;
      }
      case Field::kLoraId:
        event_.has_lora |= read_scalar().kind != Kind::kNil;
        return;
      case Field::kLoraName: {
        const Item name = read_scalar();
        event_.has_lora |= name.kind != Kind::kNil;
        event_.lora = text_of(name);
        return;
      }
      case Field::kMedium:
        event_.medium = text_of(read_scalar());
        return;
      case Field::kExtras:
        return read_extras();
      case Field::kGroup:
        event_.group = integer_of(read_scalar());
        return;
      case Field::kSpecKind:
        event_.spec_kind = text_of(read_scalar());
        return;
      case Field::kType:
      case Field::kUnknown:
        in_.skip();
        return;
    }
  }

  void read_blocks() {
    const Item list = in_.next();
    // A second list would take the place of the first: no publisher sends one.
    if (list.kind != Kind::kArray || has_blocks_) {
      makes_sense_ = false;
      return in_.skip_inside(list);
    }
    has_blocks_ = true;
    for (std::uint32_t i = 0; i < list.count && !in_.broken(); ++i) {
      const std::optional<EngineHash> hash = hash_of(read_scalar());
      makes_sense_ &= hash.has_value();
      batch_.hashes.push_back(hash.value_or(0));
    }
    now_.blocks.count = batch_.hashes.size() - now_.blocks.from;
  }

  void read_tokens() {
    const Item list = in_.next();
    if (list.kind == Kind::kNil) return;
    if (list.kind != Kind::kArray || now_.tokens.count > 0) {
      makes_sense_ = false;
      return in_.skip_inside(list);
    }
    const std::size_t count = std::min<std::size_t>(list.count, in_.left());
    std::vector<std::uint32_t>& tokens = batch_.tokens;
    const std::size_t from = tokens.size();
    tokens.resize(from + count);
    for (std::size_t i = 0; i < count; ++i) {
      if (in_.next_small(tokens[from + i])) continue;
      const Item item = read_scalar();
      const bool fits =
          item.kind == Kind::kUnsigned && item.integer <= std::numeric_limits<std::uint32_t>::max();
      makes_sense_ &= fits;
      if (fits) tokens[from + i] = static_cast<std::uint32_t>(item.integer);
      if (in_.broken()) return;
    }
    // More items than bytes: the payload ends too early.
    if (list.count > count) in_.skip();
    now_.tokens.count = count;
  }

  void read_extras() {
    const Item list = in_.next();
    if (list.kind == Kind::kNil) return;
    if (list.kind != Kind::kArray || now_.extras.count > 0) {
      makes_sense_ = false;
      return in_.skip_inside(list);
    }
    for (std::uint32_t i = 0; i < list.count && !in_.broken(); ++i) {
      if (batch_.extras.size() >= kMostExtras) {
        makes_sense_ = false;
        in_.skip();
        continue;
      }
      BlockExtras extras;
      const Item keys = in_.next();
      if (keys.kind == Kind::kArray) {
        for (std::uint32_t k = 0; k < keys.count && !in_.broken(); ++k) {
          read_extra(in_.next(), extras);
        }
      } else {
        read_extra(keys, extras);
      }
      batch_.extras.push_back(extras);
    }
    now_.extras.count = batch_.extras.size() - now_.extras.from;
  }

  // One key: a bare name, or a list of its tag and what it is.
  void read_extra(const Item& key, BlockExtras& extras) {
    if (key.kind == Kind::kNil) return;
    if (key.kind == Kind::kText) {
      if (extras.bare_count < std::size(extras.bare)) {
        extras.bare[extras.bare_count++] = key.bytes;
      } else {
        extras.other = true;
      }
      return;
    }
    if (key.kind != Kind::kArray || key.count < 2) {
      extras.other = true;
      return in_.skip_inside(key);
    }
    const std::string_view tag = text_of(read_scalar());
    const std::string_view name = text_of(read_scalar());
    for (std::uint32_t i = 2; i < key.count && !in_.broken(); ++i) in_.skip();
    if (tag == "cache_salt" && !name.empty() && extras.salt.empty()) {
      extras.salt = name;
    } else if (tag == "lora" && !name.empty() && extras.lora.empty()) {
      extras.lora = name;
    } else {
      extras.other = true;
    }
  }

  // Of tokens; larger ones are no block size.
  static constexpr std::uint64_t kLargestBlock = 1 << 20;
  // Of a batch: they take many times the memory that they take in the payload.
  static constexpr std::size_t kMostExtras = 1 << 16;

  MsgpackReader in_;
  EventBatch& batch_;
  std::vector<Ranges> ranges_;  // parallel to the batch's events
  // Of the event that is being read.
  KvEvent event_;
  Ranges now_;
  std::optional<KvEvent::Type> type_;
  bool makes_sense_ = true;
  bool has_blocks_ = false;
};

}  // namespace

bool decode_event_batch(std::string_view payload, EventBatch& batch) {
  return Decoder(payload, batch).read();
}

std::optional<std::int64_t> batch_rank(std::string_view payload) {
  MsgpackReader in(payload);
  const Item head = in.next();
  if (head.kind == Kind::kArray && head.count >= 3) {
    in.skip();
    in.skip();
    return integer_of(in.next());
  }
  for (std::uint32_t i = 0; head.kind == Kind::kMap && i < head.count && !in.broken(); ++i) {
    const Item key = in.next();
    in.skip_inside(key);
    if (text_of(key) == "data_parallel_rank") return integer_of(in.next());
    in.skip();
  }
  return std::nullopt;
}

}  // namespace pointsman
