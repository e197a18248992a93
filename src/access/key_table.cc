#include "access/key_table.h"

#include <utility>

#include <sys/stat.h>

#include "base/log.h"

namespace pointsman {
namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::string count_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " key" : " keys");
}

}  // namespace

KeyTable::State KeyTable::state() const {
  struct stat found{};
  if (::stat(file_.c_str(), &found) != 0) return {};
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .size = found.st_size,
          .modified_ns = nanoseconds(found.st_mtim),
          .changed_ns = nanoseconds(found.st_ctim)};
}

std::shared_ptr<const KeySet> KeyTable::keys() const {
  const std::lock_guard lock(mutex_);
  return keys_;
}

Result<void> KeyTable::read() {
  read_state_ = seen_state_ = state();
  const Result<std::vector<KeyLine>> lines = read_key_file(file_);
  if (!lines) return lines.error();
  auto made = std::make_shared<const KeySet>(*lines, concurrent_, keys_.get());
  const std::lock_guard lock(mutex_);
  keys_ = std::move(made);
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Result<void> KeyTable::load() {
  Result<void> loaded = read();
  if (loaded && keys_->size() == 0) log_warning(file_ + ": has no key: every request is refused");
  return loaded;
}

void KeyTable::look() {
  const State now = state();
  const bool settled = now == seen_state_;
  seen_state_ = now;
  if (settled && now != read_state_) reload();
}

void KeyTable::reload() {
  reloads_.fetch_add(1, std::memory_order_relaxed);
  if (const Result<void> loaded = read(); !loaded) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    return log_error(loaded.error().message + "; the keys stay as they were");
  }
  const std::string text = file_ + ": read again: " + count_text(keys_->size());
  keys_->size() == 0 ? log_warning(text + ": every request is refused") : log_info(text);
}

}  // namespace pointsman
