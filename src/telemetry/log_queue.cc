#include "telemetry/log_queue.h"

#include <utility>

namespace pointsman {
namespace {

// Emptied buffers that are kept, and how large one may be for that.
constexpr std::size_t kMostSpare = 64;
constexpr std::size_t kLargestSpare = std::size_t{128} << 10;

}  // namespace

LogQueue::LogQueue(std::function<void(std::string_view bytes)> consume)
    : consume_(std::move(consume)) {
  thread_ = std::thread([this] { run(); });
}

void LogQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::string LogQueue::hand_over(std::string buffer, std::uint64_t entries) {
  std::string empty;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + buffer.size() > kMaxWaiting) {
      dropped_.fetch_add(entries, std::memory_order_relaxed);
      buffer.clear();
      return buffer;
    }
    waiting_bytes_ += buffer.size();
    waiting_.push_back(std::move(buffer));
    if (!spare_.empty()) {
      empty = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  wake_.notify_one();
  return empty;
}

void LogQueue::run() {
  std::vector<std::string> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      for (std::string& buffer : batch) {
        waiting_bytes_ -= buffer.size();
        buffer.clear();
        if (spare_.size() < kMostSpare && buffer.capacity() <= kLargestSpare) {
          spare_.push_back(std::move(buffer));
        }
      }
      batch.clear();
      wake_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      batch.swap(waiting_);
    }
    for (const std::string& buffer : batch) consume_(buffer);
  }
}

}  // namespace pointsman
