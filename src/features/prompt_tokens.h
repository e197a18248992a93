#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/features.h"
#include "core/token_chain.h"
#include "features/prompt_model.h"
#include "features/segment_cache.h"

namespace pointsman {

// A prompt on its way from text to token ids. It owns what it is made of, so that another thread
// can do the work while the request it belongs to ends.
struct PromptText {
  const PromptModel* model = nullptr;
  BlockHash start = 0;  // of the chain: stands for the prompt's world

  // A chat that has not been rendered: what ChatPrompt refers to.
  bool rendered = true;
  std::string messages;
  std::string tools;
  std::string variables;
  bool add_generation_prompt = true;
  bool continue_final_message = false;

  // The text of the prompt, or of each prompt of a batch; blocks are of the first.
  std::vector<std::string> texts;
  std::size_t exact_bytes = 0;  // of the first: up to here it is what the engine sees
  bool special = false;         // with what the model puts around a plain prompt

  // --- the outcome
  std::string_view failure;        // why there are no ids, one word; empty: there are
  std::vector<BlockHash> blocks;   // of the first prompt, up to exact_bytes
  BlockHash end = 0;               // key of all ids of the first prompt
  std::uint64_t tokens = 0;        // of all prompts
  std::uint64_t first_tokens = 0;  // of the first
  std::size_t encoded_bytes = 0;   // that were turned into ids
  std::size_t known_bytes = 0;     // whose ids were known

  // Whether the engine turns what follows into tokens by itself: pictures and the like.
  [[nodiscard]] bool has_media() const {
    return !texts.empty() && exact_bytes < texts.front().size();
  }
};

// Makes token ids of prompts, with the help of what was made before. One per thread: it keeps
// memory from call to call.
class PromptTokens {
 public:
  // `cache` outlives this. `secret` and `block_ids` as in FeatureOptions.
  PromptTokens(SegmentCache& cache, std::uint64_t secret, std::uint32_t block_ids)
      : cache_(cache), chain_(secret), block_ids_(block_ids) {}

  // The text of a chat. False: it has failed.
  bool render(const ChatPrompt& chat, PromptText& prompt);
  // Cuts the prompt and looks its pieces up. The bytes that are still to be encoded.
  [[nodiscard]] std::size_t look_up(const PromptText& prompt);
  // Encodes what was not found by the look_up() of the same prompt just before, and makes the
  // blocks.
  void encode(PromptText& prompt);

  // All of it, from whatever state.
  void run(PromptText& prompt);

  [[nodiscard]] const TokenChain& chain() const { return chain_; }

 private:
  struct Piece {
    std::string_view text;
    SegmentCache::Key key;
    SegmentCache::Ids ids;  // null: not known
    bool of_first = false;  // prompt of a batch
  };

  void add_pieces(const PromptModel& model, std::string_view text, bool of_first);
  void take(PromptText& prompt, std::span<const std::uint32_t> ids, bool of_first);

  SegmentCache& cache_;
  const TokenChain chain_;
  const std::uint32_t block_ids_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> cuts_;
  std::vector<std::uint32_t> ids_;
};

}  // namespace pointsman
