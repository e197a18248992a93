#include "telemetry/opaque_hash.h"

#include <random>

namespace pointsman {

OpaqueHash::OpaqueHash(std::string_view key) {
  if (key.empty()) {
    std::random_device device;
    for (std::uint64_t& word : words_) {
      word = (static_cast<std::uint64_t>(device()) << 32) | device();
    }
    return;
  }
  // Each word depends on every byte, and on the words before.
  std::uint64_t state = 0;
  for (std::uint64_t& word : words_) {
    state += 0x9e3779b97f4a7c15ULL;
    for (const char c : key) state = mix(state ^ static_cast<unsigned char>(c)) + 1;
    word = state;
  }
}

}  // namespace pointsman
