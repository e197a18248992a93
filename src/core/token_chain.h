#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "core/features.h"

namespace pointsman {

// Keys of prompt prefixes by their token ids: h(p) stands for a prompt's first p tokens and for the
// world that it is read in.
//
//   h(0) = start(world, cache salt)     h(p) = extend(h(p - 1), token p)
//
// There is a key at every token, so engines with blocks of any size and a router with blocks of its
// own meet wherever their blocks end together. Text without token ids has chains of another kind
// (features/block_hash.h); keys of the two kinds never meet but by accident.
//
// What it is: a polynomial over the field of p = 2^61 - 1, with a secret point k:
// s(p) = s(p - 1) * k + token p (Carter and Wegman 1979), and h is a bijection of s that lets every
// bit depend on every other (the finaliser of splitmix64 after a secret whitening). So
//  - two different sequences of at most n tokens, whether they differ in a token, in their order,
//  in
//    length or in their world, have equal keys with a probability of at most n / 2^60 over the
//    secret, however they were chosen by who does not know it (n = 128 Ki: 2^-43 a pair); where
//    they were not chosen for it, 2^-61 a pair;
//  - prefixes that differ stay different under the same continuation, and no token is without
//    effect: the sequence is led by a 1, so that a token 0 is a shift and nothing less.
// Hosts that face clients draw the secret at random; those that are to repeat themselves give one.
//
// Cost: 0.9 ns a token for the keys of blocks of 16, 16 ns for a call of one token (its key is
// turned back into s first). Immutable once made, so any number of threads may use one.
class TokenChain {
 public:
  explicit TokenChain(std::uint64_t secret) {
    Rng rng(secret);
    // Any k but a few would do; small ones would leave the first tokens' states small.
    std::uint64_t k = 0;
    while (k < (std::uint64_t{1} << 32) || k >= kPrime) k = rng() >> 3;
    powers_[0] = 1;
    for (std::size_t i = 1; i < powers_.size(); ++i) powers_[i] = reduce(Wide{powers_[i - 1]} * k);
    whitening_ = rng();
  }

  // The key of no tokens in a world: the canonical name of the base model, or of the adapter
  // (LoRA); and the request's cache salt, empty for none.
  [[nodiscard]] BlockHash start(std::string_view world, std::string_view cache_salt) const {
    std::uint64_t state = 1;
    for (const std::string_view part : {world, cache_salt}) {
      for (const char c : part) state = step(state, static_cast<unsigned char>(c));
      state = step(state, kEndOfPart);
    }
    return mix(state);
  }

  // The key of the tokens behind `from` and then these.
  [[nodiscard]] BlockHash extend(BlockHash from, std::span<const std::uint32_t> tokens) const {
    return mix(advance(unmix(from), tokens));
  }
  [[nodiscard]] BlockHash extend(BlockHash from, std::uint32_t token) const {
    return mix(step(unmix(from), token));
  }

  // Appends to `out` the keys at every multiple of `block_tokens` (> 0) behind `position`, which
  // `from` is the key at, and up to the end of `tokens`. Returns the key at the end.
  BlockHash extend_blocks(BlockHash from, std::uint64_t position,
                          std::span<const std::uint32_t> tokens, std::uint32_t block_tokens,
                          std::vector<BlockHash>& out) const {
    std::uint64_t state = unmix(from);
    std::size_t part = block_tokens - static_cast<std::size_t>(position % block_tokens);
    while (part <= tokens.size()) {
      state = advance(state, tokens.first(part));
      out.push_back(mix(state));
      tokens = tokens.subspan(part);
      part = block_tokens;
    }
    return mix(advance(state, tokens));
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  static constexpr std::uint64_t kEndOfPart = std::uint64_t{1} << 32;  // no byte and no token
  static constexpr std::size_t kStride = 8;

  // The value modulo the prime, or a little above it: at most kPrime + 7. `x` is below 2^125.
  static constexpr std::uint64_t reduce(Wide x) {
    const std::uint64_t sum =
        (static_cast<std::uint64_t>(x) & kPrime) + static_cast<std::uint64_t>(x >> 61);
    return (sum & kPrime) + (sum >> 61);
  }

  [[nodiscard]] std::uint64_t step(std::uint64_t state, std::uint64_t value) const {
    return reduce(Wide{state} * powers_[1] + value);
  }

  // Eight tokens at once have one multiplication that waits for the last one's result, not eight.
  [[nodiscard]] std::uint64_t advance(std::uint64_t state,
                                      std::span<const std::uint32_t> tokens) const {
    for (; tokens.size() >= kStride; tokens = tokens.subspan(kStride)) {
      Wide sum = tokens[kStride - 1];
      for (std::size_t i = 0; i + 1 < kStride; ++i) {
        sum += Wide{powers_[kStride - 1 - i]} * tokens[i];
      }
      state = reduce(Wide{state} * powers_[kStride] + sum);
    }
    for (const std::uint32_t token : tokens) state = step(state, token);
    return state;
  }

  [[nodiscard]] BlockHash mix(std::uint64_t state) const {
    // The one way to write each value of the field.
    std::uint64_t z = (state >= kPrime ? state - kPrime : state) ^ whitening_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  // The inverse of mix(); of numbers that are no key, some value of the field.
  [[nodiscard]] std::uint64_t unmix(BlockHash hash) const {
    std::uint64_t z = hash ^ (hash >> 31) ^ (hash >> 62);
    z *= 0x319642b2d24d8ec3ULL;
    z ^= (z >> 27) ^ (z >> 54);
    z *= 0x96de1b173f119089ULL;
    z ^= (z >> 30) ^ (z >> 60);
    z ^= whitening_;
    return (z & kPrime) + (z >> 61);
  }

  std::array<std::uint64_t, kStride + 1> powers_{};  // of k
  std::uint64_t whitening_ = 0;
};

}  // namespace pointsman
