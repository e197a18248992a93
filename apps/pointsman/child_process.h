#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "base/time.h"

namespace pointsman {

// This program once more, with other arguments, as a child that never outlives its parent: the
// destructor ends it, and the kernel kills it when the parent is killed. It has a process group of
// its own, so that a Ctrl-C reaches the parent alone, which then decides.
class ChildProcess {
 public:
  // Standard output is read by read_line(), standard error goes to the file `error_log`.
  static Result<ChildProcess> start(const std::vector<std::string>& arguments,
                                    const std::string& error_log);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  // The next line of its standard output, without the line feed. Nothing after `timeout`, or when
  // the child has closed it.
  std::optional<std::string> read_line(Duration timeout);

  // SIGTERM, and SIGKILL after half a second. Harmless when repeated.
  void end();

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_ = -1;
  int output_ = -1;
  std::string unread_;
};

}  // namespace pointsman
