#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/api_key.h"
#include "access/key_file.h"

namespace pointsman {

// What the keys of one name have under way, and how much they may. Any thread; it outlives the set
// of keys that it came with, as long as a request of it runs or a later set has its name.
class KeyUse {
 public:
  KeyUse(std::string name, std::uint32_t limit) : name_(std::move(name)), limit_(limit) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::uint32_t limit) { limit_.store(limit, std::memory_order_relaxed); }

  // Counts one request in, unless as many as the limit run. Exact for any number of threads: no
  // request is refused for one that is itself being refused.
  [[nodiscard]] bool enter();
  void leave() { running_.fetch_sub(1, std::memory_order_release); }

  [[nodiscard]] std::uint32_t running() const { return running_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  std::atomic<std::uint32_t> limit_;  // 0: none
  std::atomic<std::uint32_t> running_{0};
  std::atomic<std::uint64_t> requests_{0};  // let in
  std::atomic<std::uint64_t> refused_{0};
};

// One request's place within its key's limit; given back when it ends.
class KeyLease {
 public:
  KeyLease() = default;
  // Takes a place where there is one; see held().
  explicit KeyLease(std::shared_ptr<KeyUse> use) : use_(std::move(use)), held_(use_->enter()) {}
  KeyLease(KeyLease&& other) noexcept
      : use_(std::move(other.use_)), held_(std::exchange(other.held_, false)) {}
  KeyLease& operator=(KeyLease&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    use_ = std::move(other.use_);
    held_ = std::exchange(other.held_, false);
    return *this;
  }
  KeyLease(const KeyLease&) = delete;
  KeyLease& operator=(const KeyLease&) = delete;
  ~KeyLease() { give_back(); }

  [[nodiscard]] bool held() const { return held_; }
  // The place is free again; the name stays. Again: nothing.
  void give_back() {
    if (std::exchange(held_, false)) use_->leave();
  }
  [[nodiscard]] std::uint32_t limit() const { return use_ ? use_->limit() : 0; }
  // Of the key; empty where there is none. Valid until the lease is assigned to.
  [[nodiscard]] std::string_view name() const {
    return use_ ? std::string_view(use_->name()) : std::string_view();
  }

 private:
  std::shared_ptr<KeyUse> use_;
  bool held_ = false;
};

// The keys that are valid at one time. Immutable.
class KeySet {
 public:
  // Names that `before` has too keep their counts. `concurrent`: the limit of lines without one.
  KeySet(const std::vector<KeyLine>& lines, std::uint32_t concurrent, const KeySet* before);

  // The use that the key belongs to; null: it is none of these. Looks at every key to its end,
  // whatever it finds: how long it takes tells only how many there are.
  [[nodiscard]] const std::shared_ptr<KeyUse>* find(const KeyHash& hash) const;

  [[nodiscard]] std::size_t size() const { return owners_.size(); }
  // One for each name, in the file's order.
  [[nodiscard]] std::span<const std::shared_ptr<KeyUse>> uses() const { return uses_; }

 private:
  using Words = std::array<std::uint64_t, 4>;
  static Words words_of(const KeyHash& hash);

  std::vector<Words> hashes_;
  std::vector<std::uint32_t> owners_;  // of each hash: its place in uses_
  std::vector<std::shared_ptr<KeyUse>> uses_;
};

}  // namespace pointsman
