#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pointsman {

// Hash of a whole prompt prefix that ends at a block boundary: block i's hash is taken over block
// i's content and the hash of block i-1, seeded by model, LoRA and cache salt. Equal hashes mean
// equal prefixes, so one comparison stands for a comparison of everything before it.
using BlockHash = std::uint64_t;

// What a policy wants to know of a request beyond its model, stream flag and limits, which are
// always read. Hosts leave out what no policy of the pool needs.
struct Needs {
  bool blocks = false;   // Features::blocks
  bool session = false;  // Features::session_key

  friend Needs operator|(Needs a, Needs b) {
    return {a.blocks || b.blocks, a.session || b.session};
  }
};

// What is known of a request when its replica is chosen. Views point into storage of the host and
// stay valid until the decision has been made.
struct Features {
  std::string_view model;               // empty: none was named
  bool stream = false;                  // the answer comes as server-sent events
  std::uint32_t prompt_tokens = 0;      // exact where a tokenizer is configured, else estimated
  std::uint32_t max_output_tokens = 0;  // the client's limit; 0: none given
  // Mean length of such an answer, as learnt from the model's answers; 0: nothing is known.
  std::uint32_t expected_output_tokens = 0;
  std::uint64_t session_key = 0;      // 0: none
  std::span<const BlockHash> blocks;  // chain hashes of the prompt's whole blocks
  // How many of `blocks`, from the first one on, are keys of token ids (core/token_chain.h), which
  // engines' own events can be compared with. 0: text, or a picture in the first block.
  std::uint32_t exact_blocks = 0;
  std::uint32_t block_tokens = 16;  // tokens of one block (estimated for text blocks)
  // Tokens of the prompt that `blocks` are of, where it is the first of a batch; 0: prompt_tokens.
  std::uint32_t chain_tokens = 0;
  // The engine computes all of the prompt, whatever it holds of it: prompt_logprobs are wanted.
  bool computes_all = false;
  std::uint64_t response_id = 0;  // hash of previous_response_id or of the id in the path; 0: none
  std::int32_t priority = 0;
};

}  // namespace pointsman
