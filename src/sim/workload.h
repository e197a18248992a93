#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace pointsman::sim {

// A lognormal number of tokens, cut to [low, high].
struct LengthLaw {
  double median = 100;
  double sigma = 0;
  std::uint32_t low = 1;
  std::uint32_t high = 32'000;

  [[nodiscard]] std::uint32_t draw(Rng& rng) const;
};

// Conversations of several turns with heavy-tailed lengths. Each turn's prompt is all that was said
// before, and new text; so turns after the first can find most of their prompt in a prefix cache.
struct WorkloadSpec {
  LengthLaw first_prompt;  // new tokens of the first turn
  LengthLaw follow_up;     // of every later turn
  LengthLaw output;
  // Turns of a conversation: max(1, round(mean · exp(sigma · z − sigma² / 2))).
  double turns_mean = 2.5;
  double turns_sigma = 0.4;
  // Share of conversations whose first prompt is a document, log-uniform between the bounds.
  double document_share = 0;
  std::uint32_t document_low = 32'000;
  std::uint32_t document_high = 110'000;
  // Share of turns that ask for a long generation, and its length.
  double long_generation_share = 0;
  LengthLaw long_generation;
  // What the client states as its limit, which says little about the length that comes.
  std::uint32_t max_tokens = 4'000;
  std::uint32_t long_max_tokens = 16'384;
  // Mean pause before the next turn, from the end of the last answer. Exponential.
  double think_s = 10;
};

struct Turn {
  std::uint32_t new_tokens = 1;     // of the user's message
  std::uint32_t output_tokens = 1;  // that the model will say
  std::uint32_t max_tokens = 1;     // that the client allows
  double think_s = 0;  // pause before this turn; for the first: after the conversation before
};

// Never empty.
using Conversation = std::vector<Turn>;

// Conversation number `index` of the workload: the same for the same seed, whatever else was drawn,
// so that every policy meets the same conversations.
[[nodiscard]] Conversation make_conversation(const WorkloadSpec& spec, std::uint64_t seed,
                                             std::uint64_t index);

}  // namespace pointsman::sim
