#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace pointsman {

// Room behind a request's bytes that the JSON reader may look at (never at what is there): simdjson
// reads whole vectors.
inline constexpr std::size_t kReadPadding = 64;

// Spare blocks of one size, so that a connection that wakes up does not allocate. One per reactor.
class BlockPool {
 public:
  static constexpr std::size_t kBlockSize = 16 * 1024;  // usable, without the padding

  std::unique_ptr<char[]> take() {
    if (spare_.empty()) {
      return std::unique_ptr<char[]>(new char[kBlockSize + kReadPadding]());
    }
    std::unique_ptr<char[]> block = std::move(spare_.back());
    spare_.pop_back();
    return block;
  }
  void give_back(std::unique_ptr<char[]> block) {
    if (spare_.size() < kMaxSpare) spare_.push_back(std::move(block));
  }

 private:
  static constexpr std::size_t kMaxSpare = 256;  // 4 MiB
  std::vector<std::unique_ptr<char[]>> spare_;
};

// What has come from a client and is not done with. Holds no memory while it is empty and released.
class InputBuffer {
 public:
  explicit InputBuffer(BlockPool& pool) : pool_(pool) {}
  ~InputBuffer() { release(); }
  InputBuffer(const InputBuffer&) = delete;
  InputBuffer& operator=(const InputBuffer&) = delete;

  [[nodiscard]] std::string_view bytes() const { return {data_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  [[nodiscard]] std::size_t room() const { return capacity_ - end_; }
  // Bytes that fit in all, counted from the first one held.
  [[nodiscard]] std::size_t capacity() const { return capacity_ - begin_; }

  // Makes sure that there is a block, with what is held at its start. Bytes may move.
  void prepare() {
    if (capacity_ == 0) {
      data_ = pool_.take();
      capacity_ = BlockPool::kBlockSize;
    } else if (begin_ > 0) {
      std::memmove(data_.get(), data_.get() + begin_, end_ - begin_);
    }
    end_ -= begin_;
    begin_ = 0;
  }
  // Grows to hold `size` bytes. Bytes may move.
  void reserve(std::size_t size) {
    prepare();
    if (size <= capacity_) return;
    std::unique_ptr<char[]> larger(new char[size + kReadPadding]());
    std::memcpy(larger.get(), data_.get(), end_);
    return_block();
    data_ = std::move(larger);
    capacity_ = size;
  }

  [[nodiscard]] char* tail() { return data_.get() + end_; }
  void added(std::size_t count) { end_ += count; }
  void consume(std::size_t count) {
    begin_ += std::min(count, end_ - begin_);
    if (begin_ == end_) begin_ = end_ = 0;
  }
  // Gives the memory back where nothing is held.
  void release_if_empty() {
    if (empty()) release();
  }
  void release() {
    return_block();
    capacity_ = begin_ = end_ = 0;
  }

 private:
  void return_block() {
    if (capacity_ == BlockPool::kBlockSize) pool_.give_back(std::move(data_));
    data_.reset();
  }

  BlockPool& pool_;
  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace pointsman
