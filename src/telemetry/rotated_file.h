#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pointsman {

// A file that is begun anew when it is full, or when the program starts: what was there becomes
// PATH.1, that before PATH.2, and so on; beyond `keep` of them the oldest is deleted. Not
// thread-safe.
class RotatedFile {
 public:
  RotatedFile(std::string path, std::size_t max_bytes, std::uint32_t keep)
      : path_(std::move(path)), max_bytes_(max_bytes), keep_(keep) {}
  ~RotatedFile() { close(); }
  RotatedFile(const RotatedFile&) = delete;
  RotatedFile& operator=(const RotatedFile&) = delete;

  // Moves away what is there, and opens an empty file. The error names the file.
  [[nodiscard]] Result<void> begin();

  // Whether so many bytes more stay within max_bytes.
  [[nodiscard]] bool has_room(std::size_t bytes) const { return bytes_ + bytes <= max_bytes_; }

  // All of it or nothing: where it cannot be written whole, the file is cut back to what it was.
  [[nodiscard]] Result<void> write(std::string_view text);

 private:
  void close();
  [[nodiscard]] Error error() const;

  std::string path_;
  std::size_t max_bytes_;
  std::uint32_t keep_;
  int file_ = -1;
  std::size_t bytes_ = 0;
};

}  // namespace pointsman
