#include "access/key_set.h"

#include <cstring>
#include <unordered_map>

namespace pointsman {

bool KeyUse::enter() {
  std::uint32_t running = running_.load(std::memory_order_relaxed);
  do {
    const std::uint32_t most = limit();
    if (most != 0 && running >= most) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!running_.compare_exchange_weak(running, running + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed));
  requests_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

KeySet::Words KeySet::words_of(const KeyHash& hash) {
  Words words;
  static_assert(sizeof words == sizeof hash);
  std::memcpy(words.data(), hash.data(), sizeof words);
  return words;
}

KeySet::KeySet(const std::vector<KeyLine>& lines, std::uint32_t concurrent, const KeySet* before) {
  std::unordered_map<std::string_view, std::shared_ptr<KeyUse>> known;
  if (before != nullptr) {
    for (const std::shared_ptr<KeyUse>& use : before->uses_) known.emplace(use->name(), use);
  }
  std::unordered_map<std::string_view, std::uint32_t> places;
  for (const KeyLine& line : lines) {
    const auto [place, added] = places.emplace(line.name, static_cast<std::uint32_t>(uses_.size()));
    if (added) {
      const std::uint32_t limit = line.concurrent != 0 ? line.concurrent : concurrent;
      const auto found = known.find(line.name);
      if (found != known.end()) {
        found->second->set_limit(limit);
        uses_.push_back(found->second);
      } else {
        uses_.push_back(std::make_shared<KeyUse>(line.name, limit));
      }
    }
    hashes_.push_back(words_of(line.hash));
    owners_.push_back(place->second);
  }
}

const std::shared_ptr<KeyUse>* KeySet::find(const KeyHash& hash) const {
  const Words wanted = words_of(hash);
  // One more than the place of the key; 0: none. No branch depends on what is compared.
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < hashes_.size(); ++i) {
    const Words& one = hashes_[i];
    const std::uint64_t difference =
        (one[0] ^ wanted[0]) | (one[1] ^ wanted[1]) | (one[2] ^ wanted[2]) | (one[3] ^ wanted[3]);
    // All ones where there is no difference.
    const std::uint64_t same = ((difference | (0 - difference)) >> 63) - 1;
    found |= same & (i + 1);
  }
  return found == 0 ? nullptr : &uses_[owners_[found - 1]];
}

}  // namespace pointsman
