#include "features/prompt_content.h"

#include <limits>

namespace pointsman {
namespace {

constexpr char kMark = '\xff';
constexpr std::uint64_t kMediaDigest = 0x3ed1a;

}  // namespace

void PromptContent::start(std::string_view world, std::string_view cache_salt,
                          std::vector<BlockHash>* blocks, bool want_session) {
  const std::uint64_t seed = chain_seed(world, cache_salt);
  blocks_ = blocks;
  count_ = TokenCount{};
  seed_ = session_ = piece_session_ = seed;
  session_left_ = want_session ? std::numeric_limits<std::size_t>::max() : 0;
  chain_open_ = blocks != nullptr;
  chain_of_ids_ = before_medium_ = false;
  if (!chain_open_) return;
  hasher_.reset(seed, *blocks);
  key_ = chain_.start(world, cache_salt);
  position_ = 0;
}

void PromptContent::start_behind_ids(BlockHash key, std::vector<BlockHash>& blocks) {
  start({}, {}, &blocks, /*want_session=*/false);
  key_of_ids_ = key;
  blocks_of_ids_ = blocks.size();
  before_medium_ = true;
  restart_message();
}

void PromptContent::restart_message() {
  if (!before_medium_) return;
  blocks_->resize(blocks_of_ids_);
  hasher_.reset(key_of_ids_, *blocks_);
}

void PromptContent::take(std::string_view bytes) {
  if (chain_open_ && !chain_of_ids_) hasher_.add(bytes);
  take_for_session(bytes);
}

void PromptContent::take_for_session(std::string_view bytes) {
  if (session_left_ == 0) return;
  const std::string_view part = bytes.substr(0, session_left_);
  piece_session_ = hash_bytes(part, piece_session_);
  session_left_ -= part.size();
}

void PromptContent::mark(char kind) {
  if (kind == kMessage) restart_message();
  const char bytes[2] = {kMark, kind};
  count_.add_bytes(sizeof bytes);
  take({bytes, sizeof bytes});
}

void PromptContent::text(std::string_view bytes) {
  count_.add_bytes(bytes.size());
  if (!bytes.empty()) take(bytes);
}

void PromptContent::medium(std::string_view bytes) {
  before_medium_ = false;
  count_.add_medium();
  if (!reads_bytes()) return;
  const std::uint64_t digest[2] = {hash_bytes(bytes), hash_bytes(bytes, kMediaDigest)};
  take({reinterpret_cast<const char*>(digest), sizeof digest});
}

void PromptContent::start_ids() {
  if (!chain_open_) return;
  blocks_->clear();  // of other fields, which an engine does not look at then
  chain_of_ids_ = true;
}

void PromptContent::ids(std::span<const std::uint32_t> ids) {
  count_.add_ids(ids.size());
  if (ids.empty()) return;
  if (chain_open_) {
    key_ = chain_.extend_blocks(key_, position_, ids, block_ids_, *blocks_);
    position_ += ids.size();
  }
  take_for_session({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
}

void PromptContent::end_message(std::string_view role) {
  if (session_left_ == 0) return;
  const bool user = role == "user";
  if (user || role == "system" || role == "developer") {
    session_ = piece_session_;
  } else {
    piece_session_ = session_;
  }
  if (user) session_left_ = 0;
}

std::uint64_t PromptContent::session() const {
  return piece_session_ == seed_ ? 0 : piece_session_;
}

}  // namespace pointsman
