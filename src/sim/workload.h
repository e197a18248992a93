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

enum class TurnsLaw : std::uint8_t {
  kLognormal,  // max(1, round(mean · exp(sigma · z − sigma² / 2)))
  kGeometric,  // 1, 2, 3, … with the given mean
};

// Conversations of several turns with heavy-tailed lengths. Each turn's prompt is all that was said
// before, and new text; so turns after the first can find most of their prompt in a prefix cache.
struct WorkloadSpec {
  LengthLaw first_prompt;  // new tokens of the first turn
  LengthLaw follow_up;     // of every later turn
  LengthLaw output;
  TurnsLaw turns_law = TurnsLaw::kLognormal;
  double turns_mean = 2.5;
  double turns_sigma = 0.4;  // of the lognormal law
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
  // System prompts that stand before the first prompt: how many there are (0: none), how often each
  // is used (the k-th in proportion to k^-zipf), how long each is, and the share of conversations
  // that have one.
  std::uint32_t system_prompts = 0;
  double system_zipf = 1;
  LengthLaw system_prompt = {.median = 1'000};
  double system_share = 1;
  // A conversation ends before prompt and answer together would be longer.
  std::uint32_t max_context = 131'072;

  // Expected turns of a conversation.
  [[nodiscard]] double expected_turns() const;
};

struct Turn {
  std::uint32_t new_tokens = 1;     // of the user's message
  std::uint32_t output_tokens = 1;  // that the model will say
  std::uint32_t max_tokens = 1;     // that the client allows
  double think_s = 0;  // pause before this turn; for the first: after the conversation before
};

// What is said in conversation number `index` of the workload, turn by turn: the same for the same
// seed, whatever else was drawn, so that every policy meets the same conversations.
class ConversationScript {
 public:
  ConversationScript(const WorkloadSpec& spec, std::uint64_t seed, std::uint64_t index);

  [[nodiscard]] std::uint32_t turns_left() const { return turns_left_; }
  // The next turn; not when none is left.
  [[nodiscard]] Turn next(const WorkloadSpec& spec);

 private:
  Rng rng_;
  std::uint32_t turns_left_ = 0;
  bool is_first_ = true;
};

// All turns of a conversation; never empty.
using Conversation = std::vector<Turn>;
[[nodiscard]] Conversation make_conversation(const WorkloadSpec& spec, std::uint64_t seed,
                                             std::uint64_t index);

// The system prompts of a workload.
class SystemPrompts {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  SystemPrompts(const WorkloadSpec& spec, std::uint64_t seed);

  // The one of conversation number `index`, or kNone.
  [[nodiscard]] std::uint32_t of_conversation(std::uint64_t index) const;
  [[nodiscard]] std::uint32_t tokens(std::uint32_t system_prompt) const {
    return tokens_[system_prompt];
  }
  [[nodiscard]] std::size_t count() const { return tokens_.size(); }

 private:
  std::uint64_t seed_;
  double share_;
  std::vector<double> cumulative_;  // of their shares
  std::vector<std::uint32_t> tokens_;
};

}  // namespace pointsman::sim
