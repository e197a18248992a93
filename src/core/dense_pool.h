#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pointsman {

// Items numbered from 0 without gaps, in pages that never move: push() keeps every reference valid.
// To remove an item its owner moves the last one into its place and pops, so that what the pool
// occupies follows what it holds, to the page.
template <typename T, std::size_t kPageItems>
class DensePool {
 public:
  static_assert((kPageItems & (kPageItems - 1)) == 0);

  T& operator[](std::uint32_t i) { return pages_[i / kPageItems][i % kPageItems]; }
  const T& operator[](std::uint32_t i) const { return pages_[i / kPageItems][i % kPageItems]; }

  [[nodiscard]] std::uint32_t size() const { return size_; }

  std::uint32_t push(const T& item) {
    if (size_ == pages_.size() * kPageItems) pages_.push_back(std::make_unique<T[]>(kPageItems));
    (*this)[size_] = item;
    return size_++;
  }

  void pop() {
    --size_;
    // One empty page is kept, so that a pool that breathes around a page's end does not allocate.
    if (size_ + 2 * kPageItems <= pages_.size() * kPageItems) pages_.pop_back();
  }

  [[nodiscard]] std::size_t bytes() const {
    return pages_.size() * kPageItems * sizeof(T) + pages_.capacity() * sizeof(pages_[0]);
  }

  // The most by which bytes() grows when `count` items are pushed.
  [[nodiscard]] std::size_t growth(std::size_t count) const {
    const std::size_t pages = (size_ + count + kPageItems - 1) / kPageItems;
    if (pages <= pages_.size()) return 0;
    const std::size_t directory = pages <= pages_.capacity() ? 0 : (2 * pages) * sizeof(pages_[0]);
    return (pages - pages_.size()) * kPageItems * sizeof(T) + directory;
  }

 private:
  std::vector<std::unique_ptr<T[]>> pages_;
  std::uint32_t size_ = 0;
};

}  // namespace pointsman
