#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POINTSMAN_ADDRESS_SANITIZER true
#endif
#endif
#ifndef POINTSMAN_ADDRESS_SANITIZER
#define POINTSMAN_ADDRESS_SANITIZER false
#endif

namespace pointsman::test {

// While it lives, this process can open nothing more. Other threads must be done with opening.
class NoDescriptorsLeft {
 public:
  // UndefinedBehaviorSanitizer, which comes with AddressSanitizer here, opens a pipe to see whether
  // an object may be looked at; where it cannot, it takes the object for a broken one.
  static constexpr bool kBreaksTheSanitizer = POINTSMAN_ADDRESS_SANITIZER;

  NoDescriptorsLeft() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest_free = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    EXPECT_GE(lowest_free, 0);
    ::close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
};

}  // namespace pointsman::test
