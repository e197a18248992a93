#include "proxy/body_blocks.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace pointsman {

BodyBlocks::~BodyBlocks() {
  for (const Block& spare : spare_) std::free(spare.data);
}

bool BodyBlocks::grow(Block& block, std::size_t capacity) {
  if (reuse(block, capacity)) return true;
  const std::size_t more = capacity - block.capacity;
  if (!memory_.take(more)) return false;
  // Large blocks grow by moving pages, not bytes.
  void* const larger = std::realloc(block.data, capacity + kReadPadding);
  if (larger == nullptr) {
    memory_.give_back(more);
    return false;
  }
  held_.add(static_cast<std::int64_t>(more));
  block = {static_cast<char*>(larger), capacity};
  return true;
}

bool BodyBlocks::reuse(Block& block, std::size_t capacity) {
  const auto found = std::find_if(spare_.rbegin(), spare_.rend(), [capacity](const Block& spare) {
    return spare.capacity >= capacity;
  });
  if (found == spare_.rend() || !memory_.take(found->capacity)) return false;
  Block larger = *found;
  spare_.erase(std::next(found).base());
  spare_bytes_ -= larger.capacity;
  held_.add(static_cast<std::int64_t>(larger.capacity));
  reused_ = true;
  if (block.data != nullptr) {
    std::memcpy(larger.data, block.data, block.capacity);
    give_back(block);
  }
  block = larger;
  return true;
}

void BodyBlocks::give_back(Block& block) {
  if (block.data == nullptr) return;
  memory_.give_back(block.capacity);
  held_.sub(static_cast<std::int64_t>(block.capacity));
  if (block.capacity <= kLargestSpare && spare_bytes_ + block.capacity <= kMaxSpare) {
    spare_bytes_ += block.capacity;
    spare_.push_back(block);
  } else {
    std::free(block.data);
  }
  block = Block{};
}

void BodyBlocks::age() {
  if (!std::exchange(reused_, false)) {
    for (const Block& spare : spare_) std::free(spare.data);
    spare_.clear();
    spare_bytes_ = 0;
  }
}

}  // namespace pointsman
