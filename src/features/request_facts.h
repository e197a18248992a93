#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/features.h"

namespace pointsman {

// What a request's body (and its session header) says. Owned by the exchange: it outlives the
// body's buffer, since a retry decides again.
struct RequestFacts {
  enum class Model : std::uint8_t {
    kAbsent,  // no such field
    kNull,
    kNamed,
    kOther,  // neither text nor null: the engine's own 400 will say so
  };

  bool parsed = false;  // false: not a JSON object, or broken; what stands before the break is kept
  Model model_field = Model::kAbsent;
  bool stream = false;
  bool exact_tokens = false;  // prompt_tokens is a count of ids
  bool stored = false;        // "store": true or "background": true: not to be sent twice
  std::uint32_t max_output_tokens = 0;
  std::uint32_t expected_output_tokens = 0;  // 0: nothing is known
  std::uint32_t prompt_tokens = 0;
  std::uint32_t block_tokens = 16;
  // Why the prompt of a model with a tokenizer is not known by its ids, one word; empty where it
  // is, or where nobody asked. A literal.
  std::string_view no_ids;
  bool ids_pending = false;        // they are to be made; see ChatRequestReader::take_pending()
  std::uint32_t exact_blocks = 0;  // how many of `blocks` are of token ids
  std::uint32_t chain_tokens = 0;  // see Features
  bool computes_all = false;       // see Features
  // Of a prompt that was read whole and is of text alone: its bytes. Else 0.
  std::uint64_t text_bytes = 0;
  // Of a prompt that became ids here: bytes that were turned into ids, and whose ids were known.
  std::uint64_t encoded_bytes = 0;
  std::uint64_t known_bytes = 0;
  std::int32_t priority = 0;
  std::uint64_t session_key = 0;
  std::uint64_t response_id = 0;
  std::string model;
  std::vector<BlockHash> blocks;

  // Views into this object.
  [[nodiscard]] Features features() const {
    return {.model = model,
            .stream = stream,
            .prompt_tokens = prompt_tokens,
            .max_output_tokens = max_output_tokens,
            .expected_output_tokens = expected_output_tokens,
            .session_key = session_key,
            .blocks = blocks,
            .exact_blocks = exact_blocks,
            .block_tokens = block_tokens,
            .chain_tokens = chain_tokens,
            .computes_all = computes_all,
            .response_id = response_id,
            .priority = priority};
  }

  // Empties it; the memory of the text and of the blocks is kept for the next request.
  void clear() {
    std::string text = std::move(model);
    std::vector<BlockHash> chain = std::move(blocks);
    text.clear();
    chain.clear();
    *this = RequestFacts{};
    model = std::move(text);
    blocks = std::move(chain);
  }
};

}  // namespace pointsman
