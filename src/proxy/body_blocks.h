#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "proxy/input_buffer.h"
#include "telemetry/metrics.h"

namespace pointsman {

// Memory for request bodies that are held, all of them together. Thread-safe.
class BodyMemory {
 public:
  explicit BodyMemory(std::size_t limit) : limit_(limit) {}

  [[nodiscard]] bool take(std::size_t bytes) {
    if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit_) return true;
    give_back(bytes);
    return false;
  }
  void give_back(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

// The blocks of one thread's held bodies. Blocks that were given back serve the next bodies: fresh
// ones of this size come from the system page by page, which costs more than reading the body. At
// most kMaxSpare bytes are kept, in blocks of at most kLargestSpare, and only while they are in
// use.
class BodyBlocks {
 public:
  static constexpr std::size_t kMaxSpare = std::size_t{4} << 20;
  static constexpr std::size_t kLargestSpare = std::size_t{1} << 20;

  // kReadPadding bytes more may be read behind the capacity.
  struct Block {
    char* data = nullptr;
    std::size_t capacity = 0;
  };

  // `held`: the thread's count of what is taken from `memory`.
  BodyBlocks(BodyMemory& memory, Gauge& held) : memory_(memory), held_(held) {}
  ~BodyBlocks();
  BodyBlocks(const BodyBlocks&) = delete;
  BodyBlocks& operator=(const BodyBlocks&) = delete;

  // Makes room for `capacity` bytes or more, with the block's bytes at its start. False: there is
  // no memory for it, and the block is as it was.
  [[nodiscard]] bool grow(Block& block, std::size_t capacity);
  void give_back(Block& block);

  // Called now and then: what nobody has taken since the last call is given back to the system.
  void age();
  [[nodiscard]] std::size_t spare_bytes() const { return spare_bytes_; }

 private:
  [[nodiscard]] bool reuse(Block& block, std::size_t capacity);

  BodyMemory& memory_;
  Gauge& held_;
  std::vector<Block> spare_;  // the one used last stands last
  std::size_t spare_bytes_ = 0;
  bool reused_ = false;  // since the last age()
};

}  // namespace pointsman
