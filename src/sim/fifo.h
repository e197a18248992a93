#pragma once

#include <cstddef>
#include <vector>

namespace pointsman::sim {

// First in, first out, in memory that is used again: nothing is allocated once it has been as long
// as it gets.
template <typename T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return head_ == items_.size(); }
  [[nodiscard]] std::size_t size() const { return items_.size() - head_; }
  [[nodiscard]] T& front() { return items_[head_]; }
  void push(const T& item) { items_.push_back(item); }
  void pop() {
    ++head_;
    if (head_ < items_.size() && head_ < kSlack + items_.size() / 2) return;
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }

 private:
  // Moving the rest to the front pays only where much has gone.
  static constexpr std::size_t kSlack = 64;

  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace pointsman::sim
