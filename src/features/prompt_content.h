#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/features.h"
#include "core/token_chain.h"
#include "features/block_hash.h"
#include "features/cost.h"

namespace pointsman {

// Takes the content of a prompt, piece by piece in the order in which an engine sees it, and makes
// of it what decisions need: the chain of block hashes, the content part of the session key, and
// the token count.
//
// Pieces are told apart by a mark byte that does not occur in UTF-8, so that "ab" + "c" and
// "a" + "bc" are different content, and yet two prompts share all blocks up to where they differ.
class PromptContent {
 public:
  // How much of a prompt without messages makes its session key: 1,024 bytes, or 256 ids.
  static constexpr std::size_t kSessionBytes = 1024;
  // The kind of piece that begins a message.
  static constexpr char kMessage = 'M';

  // `block_ids`: token ids of one block, of a chain of ids under `chain`, which outlives this.
  PromptContent(std::uint32_t block_bytes, std::uint32_t block_ids, const TokenChain& chain)
      : hasher_(block_bytes), chain_(chain), block_ids_(std::max<std::uint32_t>(block_ids, 1)) {}

  // Starts a prompt in the world of a model or an adapter and of a cache salt: equal prompts of
  // different worlds share nothing. `blocks`: where the chain goes; null where it is not wanted.
  void start(std::string_view world, std::string_view cache_salt, std::vector<BlockHash>* blocks,
             bool want_session);

  // The rest of a prompt whose beginning is known by its ids: blocks begin with the message that
  // has the first medium, on top of `key`, the key of those ids. What stands in that message before
  // the medium may be in the ids or behind them, as the model's template has it.
  void start_behind_ids(BlockHash key, std::vector<BlockHash>& blocks);
  // To be called at the end of such a prompt: without a medium there is nothing behind the ids.
  void end_behind_ids() { restart_message(); }

  // A new piece of the given kind (a letter) begins.
  void mark(char kind);
  // Text of the present piece.
  void text(std::string_view bytes);
  // A picture, a sound, a file: stands for its bytes by a digest of them.
  void medium(std::string_view bytes);
  // The prompt is of token ids: its chain never meets one of text. To be called before the first.
  void start_ids();
  void ids(std::span<const std::uint32_t> ids);

  // A message ends; roles as the APIs name them. Those of the system and the first of a user
  // become the content part of the session key.
  void end_message(std::string_view role);
  // What follows is no message: its first kSessionBytes become the session key.
  void start_prompt() { session_left_ = std::min(session_left_, kSessionBytes); }
  // Whether the chain is one of ids.
  [[nodiscard]] bool chain_of_ids() const { return chain_of_ids_; }
  // The prompts of a batch behind its first are counted, but make no blocks.
  void end_chain() { chain_open_ = false; }
  // Of a chain of ids: how many they are.
  [[nodiscard]] std::uint64_t chain_tokens() const { return position_; }

  [[nodiscard]] const TokenCount& count() const { return count_; }
  // The content part of the session key; 0 where there was no content.
  [[nodiscard]] std::uint64_t session() const;
  // False: only the sizes of further pieces matter, not their bytes.
  [[nodiscard]] bool reads_bytes() const { return chain_open_ || session_left_ > 0; }

 private:
  void take(std::string_view bytes);
  void restart_message();
  void take_for_session(std::string_view bytes);

  BlockHasher hasher_;
  const TokenChain& chain_;
  std::uint32_t block_ids_;
  std::vector<BlockHash>* blocks_ = nullptr;
  BlockHash key_ = 0;           // of a chain of ids: of those so far
  std::uint64_t position_ = 0;  // how many they are
  TokenCount count_;
  std::uint64_t seed_ = 0;
  std::uint64_t session_ = 0;        // of the messages that count, so far
  std::uint64_t piece_session_ = 0;  // the same and the present message or prompt
  std::size_t session_left_ = 0;     // bytes that may still count for it
  bool chain_open_ = false;
  bool chain_of_ids_ = false;
  // See start_behind_ids().
  bool before_medium_ = false;
  BlockHash key_of_ids_ = 0;
  std::size_t blocks_of_ids_ = 0;
};

}  // namespace pointsman
