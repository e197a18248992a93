#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace pointsman {

// Takes the log entries of many threads to one thread that writes them out, so that a slow disk or
// a reader that has stopped never holds up a request. Each thread fills a LogBuffer of its own;
// full ones, and those that a timer flushes, are handed over. When more than kMaxWaiting bytes wait
// for the writing thread, entries are dropped and counted.
class LogQueue {
 public:
  static constexpr std::size_t kMaxWaiting = std::size_t{16} << 20;

  // `consume` is called on the writing thread with one buffer's bytes after the other.
  explicit LogQueue(std::function<void(std::string_view bytes)> consume);
  ~LogQueue() { close(); }
  LogQueue(const LogQueue&) = delete;
  LogQueue& operator=(const LogQueue&) = delete;

  // Consumes what is left and ends the thread. All buffers must have been flushed or destroyed.
  void close();

  // Takes a filled buffer and returns an empty one. Thread-safe.
  std::string hand_over(std::string buffer, std::uint64_t entries);

  [[nodiscard]] std::uint64_t dropped_entries() const {
    return dropped_.load(std::memory_order_relaxed);
  }

 private:
  void run();

  const std::function<void(std::string_view)> consume_;
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> waiting_;
  std::vector<std::string> spare_;  // emptied buffers, to be used again
  std::size_t waiting_bytes_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

// What one thread puts into a queue.
class LogBuffer {
 public:
  explicit LogBuffer(LogQueue& queue) : queue_(queue) { bytes_.reserve(kFull + 4096); }
  ~LogBuffer() { flush(); }
  LogBuffer(const LogBuffer&) = delete;
  LogBuffer& operator=(const LogBuffer&) = delete;

  // Entries are appended here, and entry_ended() is called after each.
  [[nodiscard]] std::string& bytes() { return bytes_; }
  void entry_ended() {
    ++entries_;
    if (bytes_.size() >= kFull) flush();
  }
  void flush() {
    if (bytes_.empty()) return;
    bytes_ = queue_.hand_over(std::move(bytes_), entries_);
    entries_ = 0;
  }

 private:
  static constexpr std::size_t kFull = std::size_t{32} << 10;

  LogQueue& queue_;
  std::string bytes_;
  std::uint64_t entries_ = 0;
};

}  // namespace pointsman
