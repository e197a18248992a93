#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "features/prompt_model.h"
#include "features/segment_cache.h"

namespace pointsman {

// The models whose prompts become token ids, by the names under which they are served, and the ids
// that have been made. Immutable but for the cache; thread-safe.
class PromptModels {
 public:
  struct Entry {
    std::vector<std::string> names;     // the first one is the canonical one
    std::vector<std::string> adapters;  // served names of its LoRA adapters
    std::size_t max_prompt_bytes = std::size_t{1} << 20;
    std::unique_ptr<const PromptModel> model;
  };
  struct Found {
    const Entry* entry = nullptr;
    // The world of the prompt's keys: the canonical name of the base model, or the adapter's name.
    std::string_view world;
  };

  PromptModels(std::vector<Entry> entries, std::size_t cache_bytes, std::uint64_t secret)
      : entries_(std::move(entries)), cache_(cache_bytes, secret) {}

  // Not found (a null entry): the world is the name itself. No name: the only entry, if it is one.
  [[nodiscard]] Found find(std::string_view served_name) const;

  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // Thread-safe by itself.
  [[nodiscard]] SegmentCache& cache() { return cache_; }

 private:
  std::vector<Entry> entries_;
  SegmentCache cache_;
};

}  // namespace pointsman
