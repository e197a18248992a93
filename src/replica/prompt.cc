#include "replica/prompt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "sim/engine_config.h"

namespace pointsman {
namespace {

constexpr std::uint32_t kMaxDrawnTokens = 2'000;

}  // namespace

TokenIds tokens_of(std::string_view text) {
  TokenIds tokens;
  tokens.reserve((text.size() + kTokenBytes - 1) / kTokenBytes);
  for (std::size_t at = 0; at < text.size(); at += kTokenBytes) {
    unsigned char bytes[kTokenBytes] = {};
    std::memcpy(bytes, text.data() + at, std::min(kTokenBytes, text.size() - at));
    tokens.push_back(
        static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8 |
        static_cast<std::uint32_t>(bytes[2]) << 16 | static_cast<std::uint32_t>(bytes[3]) << 24);
  }
  return tokens;
}

void ChatTemplate::add(std::string_view role, std::string_view content) {
  text_.append("<|").append(role).append("|>\n");
  fill();
  text_.append(content);
  fill();
  text_.append("<|end|>\n");
}

std::string ChatTemplate::finish(bool add_generation_prompt) {
  if (add_generation_prompt) {
    text_.append("<|assistant|>\n");
    fill();
  }
  return std::move(text_);
}

void ChatTemplate::fill() {
  while (text_.size() % kTokenBytes != 0) text_.push_back('\n');
}

std::uint64_t mix_hash(std::uint64_t a, std::uint64_t b) {
  // The finaliser of splitmix64 over both words.
  std::uint64_t z = std::rotl(a, 25) * 0x9e3779b97f4a7c15ULL + b;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = mix_hash(seed, text.size());
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    hash = mix_hash(hash, word);
  }
  return hash;
}

std::vector<sim::ChainRun> block_chain(std::span<const std::uint32_t> tokens, std::uint64_t seed) {
  std::vector<sim::ChainRun> chain;
  chain.reserve(tokens.size() / sim::kBlockTokens);
  std::uint64_t hash = seed;
  for (std::size_t at = 0; at + sim::kBlockTokens <= tokens.size(); at += sim::kBlockTokens) {
    for (std::size_t i = at; i < at + sim::kBlockTokens; i += 2) {
      hash = mix_hash(hash, std::uint64_t{tokens[i]} << 32 | tokens[i + 1]);
    }
    chain.push_back({.id = hash, .blocks = 1});
  }
  return chain;
}

std::string AnswerText::token(std::uint32_t index) const {
  std::uint64_t bits = mix_hash(seed_, index);
  std::string text(kTokenBytes, ' ');
  for (std::size_t i = 0; i + 1 < kTokenBytes; ++i) {
    text[i] = static_cast<char>('a' + bits % 26);
    bits /= 26;
  }
  return text;
}

std::uint32_t drawn_answer_tokens(std::uint64_t prompt_hash) {
  Rng rng(prompt_hash);
  // Box and Muller 1958; the sum keeps the logarithm's argument above zero.
  const double u = 1.0 - rng.unit();
  const double normal = std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * rng.unit());
  const double length = 128.0 * std::exp(0.8 * normal);
  return static_cast<std::uint32_t>(
      std::clamp(std::lround(length), 1L, static_cast<long>(kMaxDrawnTokens)));
}

}  // namespace pointsman
