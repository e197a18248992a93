#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "access/key_set.h"
#include "base/result.h"

namespace pointsman {

// The keys of a file, which is read again when it has changed. What is wrong with the file leaves
// the keys as they were and is told once.
//
// load(), look() and reload() are for one thread; the rest for any.
class KeyTable {
 public:
  // `concurrent`: requests of one key at a time where its line does not say; 0: no limit.
  KeyTable(std::string file, std::uint32_t concurrent)
      : file_(std::move(file)), concurrent_(concurrent) {}

  // The first time: without a file that can be read there is no table.
  Result<void> load();
  // To be called every second or so: reads the file again once it differs from what was read last,
  // and has stayed as it is since the call before, so that one that is just being written is not
  // read in half.
  void look();
  // Reads it again at once.
  void reload();

  // Changes with the keys.
  [[nodiscard]] std::uint64_t generation() const {
    return generation_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::shared_ptr<const KeySet> keys() const;

  // How often the file was read again, and how often that failed.
  [[nodiscard]] std::uint64_t reloads() const { return reloads_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

 private:
  // What tells one state of a file from another.
  struct State {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;  // 0: no file
    std::int64_t size = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;
    bool operator==(const State&) const = default;
  };
  [[nodiscard]] State state() const;
  Result<void> read();

  const std::string file_;
  const std::uint32_t concurrent_;
  State read_state_;  // when it was read last
  State seen_state_;  // when it was looked at last
  mutable std::mutex mutex_;
  std::shared_ptr<const KeySet> keys_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::uint64_t> reloads_{0};
  std::atomic<std::uint64_t> failures_{0};
};

}  // namespace pointsman
