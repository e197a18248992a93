#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace pointsman {

// Makes hashes opaque: another 64-bit number for each, under a secret key. Whoever has the log but
// not the key cannot hash a text that they guess and look whether it is there. Equal stays equal
// and different stays different (it is a permutation), and whoever has the key can turn it back.
//
// Two rounds of Even and Mansour's construction (J. Cryptology 1997) over the finaliser of
// splitmix64. A guard against guessed texts, no cipher for those who know many pairs.
class OpaqueHash {
 public:
  // An empty key stands for a random one.
  explicit OpaqueHash(std::string_view key);

  [[nodiscard]] std::uint64_t operator()(std::uint64_t hash) const {
    return mix(mix(hash ^ words_[0]) ^ words_[1]) ^ words_[2];
  }

 private:
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::array<std::uint64_t, 3> words_{};
};

}  // namespace pointsman
