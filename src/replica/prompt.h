#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/kv_model.h"

namespace pointsman {

// The tokens of the simulated model: one for each 4 bytes of text, the last one filled up with zero
// bytes; the id is these bytes read as a little-endian number. Ids given by the client are taken as
// they are.
using TokenIds = std::vector<std::uint32_t>;

inline constexpr std::size_t kTokenBytes = 4;

[[nodiscard]] TokenIds tokens_of(std::string_view text);

// The simulated model's chat template. A message becomes a line with its role, its content, and a
// line that ends it, each filled up with line feeds to whole tokens. So the rendered first turns of
// a conversation, with the answers that were given, are a token-wise prefix of the next turn, as
// they are for engines with a stable tokenizer and template.
class ChatTemplate {
 public:
  void add(std::string_view role, std::string_view content);
  // Ends with the line that opens the assistant's answer, unless that is not wanted.
  [[nodiscard]] std::string finish(bool add_generation_prompt = true);

 private:
  void fill();

  std::string text_;
};

// The prefix-cache chain of `tokens`: one run for each full block, its id a hash over its tokens
// and all before. `seed` keeps models, adapters and cache salts apart.
[[nodiscard]] std::vector<sim::ChainRun> block_chain(std::span<const std::uint32_t> tokens,
                                                     std::uint64_t seed);

// What the simulated model says: the same answer to the same prompt, in ASCII words of 3 letters.
class AnswerText {
 public:
  explicit AnswerText(std::uint64_t seed) : seed_(seed) {}
  // Exactly kTokenBytes bytes, that need no escaping in JSON.
  [[nodiscard]] std::string token(std::uint32_t index) const;

 private:
  std::uint64_t seed_;
};

// Length of an answer where the client set no limit: lognormal with median 128 and sigma 0.8, at
// most 2,000, drawn from the prompt's hash.
[[nodiscard]] std::uint32_t drawn_answer_tokens(std::uint64_t prompt_hash);

// A 64-bit hash that differs for nearly equal inputs; not for hostile ones.
[[nodiscard]] std::uint64_t hash_text(std::string_view text, std::uint64_t seed = 0);
[[nodiscard]] std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b);

}  // namespace pointsman
