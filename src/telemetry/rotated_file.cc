#include "telemetry/rotated_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace pointsman {
namespace {

std::string numbered(const std::string& path, std::uint32_t number) {
  return number == 0 ? path : path + "." + std::to_string(number);
}

}  // namespace

void RotatedFile::close() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

Result<void> RotatedFile::begin() {
  close();
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(path_, none);
  if (!none && size > 0) {
    // A file that cannot be moved is overwritten: the log stays within its bounds.
    for (std::uint32_t i = keep_; i > 0; --i) {
      static_cast<void>(std::rename(numbered(path_, i - 1).c_str(), numbered(path_, i).c_str()));
    }
    if (keep_ == 0) ::unlink(path_.c_str());
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
  bytes_ = 0;
  if (file_ < 0) return error();
  return {};
}

// Of the system call that just failed.
Error RotatedFile::error() const {
  return {ErrorKind::kClient,
          "cannot write '" + path_ + "': " + std::generic_category().message(errno)};
}

Result<void> RotatedFile::write(std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      Error failed = error();
      static_cast<void>(::ftruncate(file_, static_cast<off_t>(bytes_)) == 0);
      return failed;
    }
    done += static_cast<std::size_t>(written);
  }
  bytes_ += done;
  return {};
}

}  // namespace pointsman
